"""What Argo Rollouts and mirrors write into our objects survives that the objects are repeated."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fleet import fleet_spec, release

from rollouts.cluster.desired_objects import tried
from rollouts.manifests.ownership import with_preserved_fields
from rollouts.manifests.render import render
from rollouts.manifests.routers import HttpRoutes, RouteKind, VirtualServices
from tidegate.core.model import Json

NAME = "support-llm"
HTTP, ISTIO = HttpRoutes(f"{NAME}-stable", f"{NAME}-canary"), VirtualServices(f"{NAME}-stable", f"{NAME}-canary")


def one(kind: str, **fleet: Any) -> Json:
    return next(each for each in render(fleet_spec(**fleet), release()) if each["kind"] == kind)


@pytest.mark.parametrize(("weight", "mirror"), [(0, 100), (25, 30), (100, 0)])
@pytest.mark.parametrize(("kind", "traffic"), [(HTTP, "gateway-api"), (ISTIO, "istio")])
def test_a_route_keeps_weights_and_copies(kind: RouteKind, traffic: str, weight: int, mirror: int) -> None:
    route = one(kind.resource.kind, traffic=traffic)
    live = kind.weighted(kind.mirrored(route, mirror), weight)
    said = with_preserved_fields(route, live)
    assert said == live
    assert (kind.weight(said), kind.mirror(said)) == (weight, mirror)


def test_what_the_spec_says_again_is_said() -> None:
    live = one("HTTPRoute")
    route = one("HTTPRoute", gateway={"name": "others", "hosts": ["new.example.com"]})
    assert with_preserved_fields(route, live)["spec"]["hostnames"] == ["new.example.com", "eu-west-1.example.com"]


def test_a_rollout_keeps_the_attempt_of_its_version_and_of_no_other() -> None:
    live = tried(one("Rollout"), 3)
    assert with_preserved_fields(one("Rollout"), live) == live
    live["spec"]["template"]["metadata"]["labels"]["tidegate.dev/version"] = "6"
    assert with_preserved_fields(one("Rollout"), live) == one("Rollout")
