"""All files that make a delivery's SLOs work outside of tidegate: in Sloth, Prometheus, a cluster and Alertmanager."""

from slo.export.files import exported
from slo.export.model import Cluster, Exported, Wanted

__all__ = ["Cluster", "Exported", "Wanted", "exported"]
