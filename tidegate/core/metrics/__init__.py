"""Which series of a Prometheus tell what gates, SLOs and dashboards ask: by preset, by hand, or both."""
