"""The smallest specs of clusters."""

from __future__ import annotations

from typing import Any

from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.spec import parse_spec

IMAGE = "registry.example.com/support-llm@sha256:" + "7" * 64
DIGEST = "d" * 64


def region(name: str, **changes: Any) -> dict[str, Any]:
    """One region, in a cluster of its own."""
    return {
        "context": name,
        "entry": f"https://{name}.example.com",
        "stable_url": f"https://stable.{name}.example.com",
        "canary_url": f"https://canary.{name}.example.com",
        "prometheus": f"http://prometheus.{name}.example.com:9090",
        **changes,
    }


def fleet_spec(**changes: Any) -> ArgoFleetSpec:
    """What is required, and `changes`."""
    required = {
        "kind": "argo",
        "namespace": "serving",
        "regions": {"eu-west-1": region("eu-west-1")},
        "gateway": {"name": "users", "namespace": "gateways", "hosts": ["support-llm.example.com"]},
    }
    return ArgoFleetSpec.model_validate({**required, **changes})


def read_fleet(text: str) -> ArgoFleetSpec:
    """From YAML, with everything that is wrong told."""
    return parse_spec(text, ArgoFleetSpec, file="fleet.yaml")


def release(**changes: Any) -> Release:
    """Version 7 of support-llm in eu-west-1, on a CPU."""
    required = {"delivery": "support-llm", "region": "eu-west-1", "version": "7", "digest": DIGEST, "image": IMAGE}
    return Release.model_validate({**required, **changes})
