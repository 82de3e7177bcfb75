"""What teams have before tidegate: recorded objects in clusters of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from fakes.clock import RealTime, SimulatedTime
from fakes.kube.cluster import FakeCluster

from rollouts.kube.resources import resource_of

RECORDED = Path(__file__).parents[2] / "golden/existing"
NAMESPACE = "serving"


def existing(case: str, *, name: str = "eu-west-1", real_time: bool = False) -> FakeCluster:
    """A cluster with the objects of that case."""
    cluster = FakeCluster(name, namespace=NAMESPACE, time=RealTime() if real_time else SimulatedTime())
    cluster.create_namespace("gateways")
    for body in recorded(case):
        cluster.create(resource_of(body), body)
        if "status" in body:
            cluster.patch(resource_of(body), body["metadata"]["name"], {"status": body["status"]}, subresource="status")
    return cluster


def recorded(case: str) -> list[dict[str, Any]]:
    """Its objects, the workload first."""
    return list(yaml.safe_load_all((RECORDED / f"{case}.yaml").read_text(encoding="utf-8")))
