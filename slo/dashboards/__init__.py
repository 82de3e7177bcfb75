"""Grafana dashboards of a service: L1 on-call, L2 ML engineering, L3 cost; the JSON files have their panels."""
