"""How KEDA and analyses get at a Prometheus that wants to know who asks, and what tidegate may write of that."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fleet import fleet_spec, region, release
from fakes.schemas import problems_in

from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.capacity import trigger_authentication
from rollouts.manifests.render import render
from rollouts.manifests.spec import FleetValidationContext
from tidegate.core.model import Json

URL = "https://mimir.example.com/prometheus"


def key(name: str) -> dict[str, Any]:
    return {"secret": {"name": "prometheus", "key": name}}


def site(prometheus: object, **changes: Any) -> Site:
    wanted = {"autoscale": {"min_replicas": 1, "max_replicas": 4}, **changes}
    fleet = fleet_spec(regions={"eu-west-1": region("eu-west-1", prometheus=prometheus)}, **wanted)
    return Site(fleet=fleet, release=release())


def rendered(prometheus: object, part: RenderPart) -> dict[str, Json]:
    one = site(prometheus)
    return {each["kind"]: each for each in render(one.fleet, one.release, parts=[part])}


@pytest.mark.parametrize(
    ("auth", "mode", "parameters"),
    [
        ({"bearer": key("token")}, "bearer", {"bearerToken": "token"}),
        (
            {"basic": {"username": key("name"), "password": key("password")}},
            "basic",
            {"username": "name", "password": "password"},
        ),
        ({"certificate": {"certificate": key("crt"), "key": key("pem")}}, "tls", {"cert": "crt", "key": "pem"}),
    ],
)
def test_keda_reads_its_secrets_itself(auth: dict[str, Any], mode: str, parameters: dict[str, str]) -> None:
    prometheus = {"url": URL, "tenant": "team-a", "auth": auth}
    trigger = rendered(prometheus, RenderPart.SERVING)["ScaledObject"]["spec"]["triggers"][0]
    assert trigger["authenticationRef"] == {"name": "support-llm-prometheus"}
    assert (
        trigger["metadata"].items()
        >= {
            "serverAddress": URL,
            "authModes": mode,
            "customHeaders": "X-Scope-OrgID=team-a",
        }.items()
    )
    made = rendered(prometheus, RenderPart.SETUP)["TriggerAuthentication"]
    assert made["metadata"]["name"] == "support-llm-prometheus" and problems_in(made) == []
    targets = made["spec"]["secretTargetRef"]
    assert {each["parameter"]: each["key"] for each in targets} == parameters
    assert {each["name"] for each in targets} == {"prometheus"}


def test_amazons_signature_is_kedas_own() -> None:
    prometheus = {"url": URL, "auth": {"sigv4": {"region": "eu-west-1"}}}
    assert rendered(prometheus, RenderPart.SETUP)["TriggerAuthentication"]["spec"] == {
        "podIdentity": {"provider": "aws"}
    }
    trigger = rendered(prometheus, RenderPart.SERVING)["ScaledObject"]["spec"]["triggers"][0]
    assert trigger["metadata"]["awsRegion"] == "eu-west-1"


def test_who_is_asked_without_credentials_gets_none() -> None:
    inside = {
        "url": URL,
        "auth": {"bearer": {"env": "TIDEGATE_SPEC_TOKEN"}},
        "rollouts": "http://prometheus.monitoring:9090",
    }
    assert trigger_authentication(site(inside)) is None
    assert trigger_authentication(site(URL)) is None
    trigger = rendered(inside, RenderPart.SERVING)["ScaledObject"]["spec"]["triggers"][0]
    assert "authenticationRef" not in trigger and "authModes" not in trigger["metadata"]


def around(**changes: Any) -> FleetValidationContext:
    said = {"name": "support-llm", "regions": ("eu-west-1",), "bake": "10m", "accelerator": "cpu", **changes}
    return FleetValidationContext.model_validate({**said, "bake": 600})


def test_those_who_cannot_say_who_they_are_are_told_with_their_place() -> None:
    alone = {"url": URL, "auth": {"bearer": {"env": "TIDEGATE_SPEC_TOKEN"}}}
    places = [".".join(map(str, odd.where)) for odd in site(alone).fleet.conflicts_with(around(analysed=True))]
    assert places == ["regions.eu-west-1.prometheus.auth.bearer"] * 2
    assert list(site(alone, autoscale=None).fleet.conflicts_with(around())) == []
    elsewhere = {**alone, "rollouts": {"url": URL, "auth": {"certificate": {"certificate": key("a"), "key": key("b")}}}}
    places = [".".join(map(str, odd.where)) for odd in site(elsewhere).fleet.conflicts_with(around(analysed=True))]
    assert places == ["regions.eu-west-1.prometheus.rollouts.auth.certificate"]
