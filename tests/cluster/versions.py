"""What the clusters of a run were, for `docs/reference/compatibility.md`, from the file that a run of the tests leaves.

A cluster is asked where it tells; the versions of what stands around it are those that its surroundings name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import httpx

from rollouts.kube.client import KubeClient
from rollouts.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

VARIABLE = "TIDEGATE_TEST_VERSIONS"
"""Names the file that gets them."""
ROUTES = "httproutes.gateway.networking.k8s.io"
BUNDLE = "gateway.networking.k8s.io/bundle-version"
"""Annotation of the Gateway API's own definitions."""


async def versions_of(cluster: KubeClient, told: Mapping[str, str]) -> dict[str, str]:
    """By name, without a leading `v`; `told` is what the cluster does not say itself."""
    routes = await cluster.get(CUSTOM_RESOURCE_DEFINITIONS, ROUTES)
    asked = {
        "Kubernetes": json.loads(await cluster.text("/version"))["gitVersion"],
        "Gateway API": routes["metadata"].get("annotations", {}).get(BUNDLE, ""),
    }
    found = {name: version.removeprefix("v") for name, version in {**told, **asked}.items() if version}
    return dict(sorted(found.items()))


def prometheus_version(address: str) -> str:
    """As it says itself, without a distribution's own mark."""
    said = httpx.get(f"{address}/api/v1/status/buildinfo").raise_for_status().json()
    return str(said["data"]["version"]).partition("+")[0]


def keep(versions: Mapping[str, str], file: Path) -> None:
    """Write them down."""
    file.write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
