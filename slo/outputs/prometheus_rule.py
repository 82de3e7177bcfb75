"""An object of kind PrometheusRule, from which the Prometheus operator makes rule files."""

from __future__ import annotations

from collections.abc import Iterable

from slo.model import KubernetesNames, Labels
from slo.outputs.layout import written
from slo.rules.model import Document, RuleGroup

OWN_LABELS: Labels = {"app.kubernetes.io/component": "SLO", "app.kubernetes.io/managed-by": "sloth"}
"""What Sloth sets on each of its objects; rule selectors in clusters ask for them."""


def prometheus_rule(groups: Iterable[RuleGroup], names: KubernetesNames) -> str:
    """One YAML document; join several of them as they are."""
    metadata: Document = {
        "name": names.name,
        "namespace": names.namespace,
        "labels": dict(sorted({**names.labels, **OWN_LABELS}.items())),
        "annotations": dict(sorted(names.annotations.items())),
    }
    return written(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": {"groups": [group.to_dict() for group in groups]},
        }
    )
