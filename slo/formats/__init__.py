"""The three formats that SLOs are written in: Sloth's `prometheus/v1`, its Kubernetes object, and OpenSLO v1alpha."""

from slo.formats.read import read, read_all
from slo.formats.write import write_kubernetes, write_prometheus

__all__ = ["read", "read_all", "write_kubernetes", "write_prometheus"]
