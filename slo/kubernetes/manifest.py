"""What all Kubernetes objects have: a kind, a name that the API server accepts, and labels."""

from __future__ import annotations

from slo.model import KubernetesNames

Manifest = dict[str, object]


def manifest(api_version: str, kind: str, names: KubernetesNames, spec: Manifest) -> Manifest:
    """The object, without the parts of its metadata that are empty."""
    metadata = {key: value for key, value in names.model_dump().items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
