"""Rule groups as files: Prometheus' own, or PrometheusRule objects of the Prometheus operator."""

from __future__ import annotations

from collections.abc import Iterable

from slo.model import KubernetesNames, Labels
from slo.rules import Document, RuleGroup
from tidegate.core.names import MANAGED_BY_LABEL
from tidegate.core.yaml_text import yaml_text

HEADER = "---\n# Written by tidegate from SLOs, with the rules of Sloth. Change the SLOs, not this file.\n\n"


def yaml_document(document: dict[str, object], header: str = HEADER) -> str:
    """One YAML document below its header; others may follow it in the same file."""
    return f"{header}{yaml_text(document)}"


def rule_file(groups: Iterable[RuleGroup]) -> str:
    """One YAML document with all groups: of several, Prometheus would read the first and not tell."""
    return yaml_document({"groups": [group.to_dict() for group in groups]})


OWN_LABELS: Labels = {"app.kubernetes.io/component": "SLO", MANAGED_BY_LABEL: "sloth"}
"""What Sloth sets on each of its objects; rule selectors in clusters ask for them."""


def prometheus_rule(groups: Iterable[RuleGroup], names: KubernetesNames) -> str:
    """One YAML document; join several of them as they are."""
    metadata: Document = {
        "name": names.name,
        "namespace": names.namespace,
        "labels": dict(sorted({**names.labels, **OWN_LABELS}.items())),
        "annotations": dict(sorted(names.annotations.items())),
    }
    return yaml_document(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": {"groups": [group.to_dict() for group in groups]},
        }
    )
