"""What tidegate itself exports: numbers of gates, the state of a delivery, scores of judges.

It sets every label of its own accord, also those that Prometheus sets on the series of engines.
"""

from __future__ import annotations

from slo.metrics.model import SERVICE, Kind, Metric


def _gauge(name: str, *labels: str) -> Metric:
    return Metric(name=f"tidegate_{name}", kind=Kind.GAUGE, labels=("instance", SERVICE, *labels))


GATE_NUMBER = _gauge("gate_number", "gate", "number", "stage", "region", "version")
"""Each number of a gate's last verdict."""
GATE_OUTCOME = _gauge("gate_outcome", "gate", "outcome", "stage", "region", "version")
"""1 for the outcome of a gate's last verdict, 0 for the others."""
DELIVERY = _gauge("delivery_info", "delivery", "model", "version", "champion")
STATE = _gauge("delivery_state", "delivery", "state", "version")
"""1 for the state that a delivery is in, 0 for the others."""
WEIGHT = _gauge("delivery_weight_percent", "region", "version")
MIRROR = _gauge("delivery_mirror_percent", "region", "version")
QUALITY = _gauge("quality_score", "dimension", "region", "role", "version")
"""0 to 1, of one dimension of a judge; `overall` is the weighted mean of all, `golden` the mean of the golden set."""

TIDEGATE = (GATE_NUMBER, GATE_OUTCOME, DELIVERY, STATE, WEIGHT, MIRROR, QUALITY)
