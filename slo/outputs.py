"""Rule groups and other objects as text: Prometheus' own files, and objects of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable

from slo.model import KubernetesNames, Labels
from slo.rules import RuleGroup
from tidegate.core.model import Json
from tidegate.core.names import MANAGED_BY_LABEL
from tidegate.core.yaml_text import yaml_text

HEADER = "---\n# Written by tidegate from SLOs, with the rules of Sloth. Change the SLOs, not this file.\n\n"


def manifest(api_version: str, kind: str, names: KubernetesNames, spec: Json) -> Json:
    """The object, without the parts of its metadata that are empty."""
    metadata = {key: value for key, value in names.model_dump().items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def yaml_document(document: Json, header: str = HEADER) -> str:
    """One YAML document below its header; others may follow it in the same file."""
    return f"{header}{yaml_text(document)}"


def rule_file(groups: Iterable[RuleGroup]) -> str:
    """One YAML document with all groups: of several, Prometheus would read the first and not tell."""
    return yaml_document({"groups": [group.to_dict() for group in groups]})


OWN_LABELS: Labels = {"app.kubernetes.io/component": "SLO", MANAGED_BY_LABEL: "sloth"}
"""What Sloth sets on each of its objects; rule selectors in clusters ask for them."""


def prometheus_rule(groups: Iterable[RuleGroup], names: KubernetesNames) -> str:
    """A PrometheusRule of the Prometheus operator, as one YAML document; join several of them as they are."""
    sorted_names = names.model_copy(
        update={
            "labels": dict(sorted({**names.labels, **OWN_LABELS}.items())),
            "annotations": dict(sorted(names.annotations.items())),
        }
    )
    spec: Json = {"groups": [group.to_dict() for group in groups]}
    return yaml_document(manifest("monitoring.coreos.com/v1", "PrometheusRule", sorted_names, spec))
