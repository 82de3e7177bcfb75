"""What a route says of stable and canary, and what becomes of it when copies are asked for."""

from __future__ import annotations

from copy import deepcopy

import pytest

from rollouts.manifests.routers import HttpRoutes, RouteKind, VirtualServices
from tidegate.core.model import Json

NAME = "support-llm"
HTTP, ISTIO = HttpRoutes(f"{NAME}-stable", f"{NAME}-canary"), VirtualServices(f"{NAME}-stable", f"{NAME}-canary")


def http_route(stable: int | None = 75, canary: int | None = 25) -> Json:
    """With a rule of somebody else before that of users."""
    refs: list[Json] = [{"name": f"{NAME}-stable", "port": 80}, {"name": f"{NAME}-canary", "port": 80}]
    for ref, weight in zip(refs, (stable, canary), strict=True):
        if weight is not None:
            ref["weight"] = weight
    other = {"backendRefs": [{"name": "docs", "port": 80}]}
    return {"spec": {"rules": [other, {"backendRefs": refs}]}}


def virtual_service(stable: int = 75, canary: int = 25) -> Json:
    targets = [
        {"destination": {"host": f"{NAME}-stable.support.svc.cluster.local"}, "weight": stable},
        {"destination": {"host": f"{NAME}-canary"}, "weight": canary},
    ]
    return {"spec": {"http": [{"name": "docs", "route": []}, {"name": "users", "route": targets}]}}


BOTH = pytest.mark.parametrize(
    ("kind", "route"),
    [
        pytest.param(HTTP, http_route(), id="HTTPRoute"),
        pytest.param(ISTIO, virtual_service(), id="VirtualService"),
    ],
)


@BOTH
@pytest.mark.parametrize("percent", [1, 30, 100])
def test_copies_are_written_and_read_back(kind: RouteKind, route: Json, percent: int) -> None:
    before = deepcopy(route)
    copying = kind.mirrored(route, percent)
    assert kind.mirror(copying) == percent
    assert kind.weight(copying) == 25
    assert kind.mirrored(copying, 0) == route == before


@BOTH
def test_another_delivery_is_not_meant(kind: RouteKind, route: Json) -> None:
    copying = kind.mirrored(route, 100)
    assert type(kind)("other-llm-stable", "other-llm-canary").mirror(copying) == 0


def test_rules_of_others_are_left_alone() -> None:
    route = http_route()
    assert HTTP.mirrored(route, 100)["spec"]["rules"][0] == route["spec"]["rules"][0]


def test_a_weight_that_is_not_said_is_one() -> None:
    """Gateway API, `HTTPBackendRef.weight`: a route without weights sends half of all users to the canary."""
    assert HTTP.weight(http_route(None, None)) == 50
    assert HTTP.weight(http_route(None, 0)) == 0


@pytest.mark.parametrize("kind", [HTTP, ISTIO])
def test_a_route_without_rules_sends_nobody_anywhere(kind: RouteKind) -> None:
    assert (kind.weight({"spec": {}}), kind.mirror({"spec": {}})) == (0, 0)
    assert kind.mirrored({"spec": {}}, 100) == {"spec": {}}


def test_a_mirror_without_a_percentage_copies_everything() -> None:
    route = virtual_service()
    route["spec"]["http"][1]["mirror"] = {"host": f"{NAME}-canary"}
    assert ISTIO.mirror(route) == 100
