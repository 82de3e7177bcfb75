"""The three formats that SLOs are written in: Sloth's `prometheus/v1`, its Kubernetes object, and OpenSLO v1alpha."""
