"""What Argo Rollouts and mirrors write into our objects survives that the objects are repeated."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from fakes.fleet import fleet_spec, release

from rollouts.cluster.desired_objects import tried
from rollouts.manifests.ownership import with_preserved_fields
from rollouts.manifests.render import render
from rollouts.manifests.routers import HttpRoutes, VirtualServices
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH

NAME = "support-llm"
HTTP, ISTIO = HttpRoutes(f"{NAME}-stable", f"{NAME}-canary"), VirtualServices(f"{NAME}-stable", f"{NAME}-canary")


def one(kind: str, **fleet: Any) -> Json:
    return next(each for each in render(fleet_spec(**fleet), release()) if each["kind"] == kind)


def test_a_service_keeps_the_hash_that_makes_its_selector_one_version() -> None:
    service = one("Service")
    live = deepcopy(service)
    live["spec"]["selector"][POD_TEMPLATE_HASH] = "5d4f"
    assert with_preserved_fields(service, live) == live
    assert with_preserved_fields(service, service) == service


@pytest.mark.parametrize(("weight", "mirror"), [(0, 100), (25, 30), (100, 0)])
def test_an_http_route_keeps_weights_and_copies(weight: int, mirror: int) -> None:
    route = one("HTTPRoute")
    live = HTTP.mirrored(route, percent=mirror)
    for ref, share in zip(live["spec"]["rules"][0]["backendRefs"], (100 - weight, weight), strict=True):
        ref["weight"] = share
    said = with_preserved_fields(route, live)
    assert said == live
    assert HTTP.weight(said) == weight
    assert HTTP.mirror(said) == mirror


@pytest.mark.parametrize(("weight", "mirror"), [(0, 100), (25, 30), (100, 0)])
def test_a_virtual_service_keeps_weights_and_copies(weight: int, mirror: int) -> None:
    service = one("VirtualService", traffic="istio")
    live = ISTIO.mirrored(service, percent=mirror)
    for target, share in zip(live["spec"]["http"][0]["route"], (100 - weight, weight), strict=True):
        target["weight"] = share
    said = with_preserved_fields(service, live)
    assert said == live
    assert ISTIO.weight(said) == weight
    assert ISTIO.mirror(said) == mirror


def test_what_the_spec_says_again_is_said() -> None:
    live = one("HTTPRoute")
    route = one("HTTPRoute", gateway={"name": "others", "hosts": ["new.example.com"]})
    assert with_preserved_fields(route, live)["spec"]["hostnames"] == ["new.example.com", "eu-west-1.example.com"]


def test_filters_of_others_are_not_kept() -> None:
    live = one("HTTPRoute")
    live["spec"]["rules"][0]["filters"] = [{"type": "URLRewrite", "urlRewrite": {"hostname": "elsewhere"}}]
    assert with_preserved_fields(one("HTTPRoute"), live) == one("HTTPRoute")


def test_a_rollout_keeps_the_attempt_of_its_version_and_of_no_other() -> None:
    live = tried(one("Rollout"), 3, None)
    assert with_preserved_fields(one("Rollout"), live) == live
    live["spec"]["template"]["metadata"]["labels"]["tidegate.dev/version"] = "6"
    assert with_preserved_fields(one("Rollout"), live) == one("Rollout")
