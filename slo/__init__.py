"""SLOs: Sloth's format in, the same Prometheus rules out, and what a delivery makes of them."""
