"""Those who ask a Prometheus from inside a cluster, and cannot say who they are."""

from __future__ import annotations

from typing import Any

from fakes.fleet import fleet_spec, region, release

from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.render import render
from rollouts.manifests.spec import FleetValidationContext
from tidegate.core.model import Json

URL, INSIDE = "https://mimir.example.com/prometheus", "http://prometheus.monitoring:9090"
TOKEN = {"url": URL, "auth": {"bearer": {"env": "TIDEGATE_SPEC_TOKEN"}}}


def fleet(prometheus: object, **changes: Any) -> Any:
    wanted = {"autoscale": {"min_replicas": 1, "max_replicas": 4}, **changes}
    return fleet_spec(regions={"eu-west-1": region("eu-west-1", prometheus=prometheus)}, **wanted)


def asked(prometheus: object) -> str:
    """Where KEDA asks."""
    objects = {each["kind"]: each for each in render(fleet(prometheus), release(), parts=[RenderPart.SERVING])}
    triggers: list[Json] = objects["ScaledObject"]["spec"]["triggers"]
    (address,) = {each["metadata"]["serverAddress"] for each in triggers}
    return str(address)


def test_keda_asks_where_it_is_told_or_where_argo_rollouts_does() -> None:
    assert asked(URL) == URL
    assert asked({**TOKEN, "rollouts": INSIDE}) == INSIDE
    assert asked({**TOKEN, "keda": "http://keda.monitoring:9090"}) == "http://keda.monitoring:9090"


def places(prometheus: object, **changes: Any) -> list[str]:
    around = FleetValidationContext.model_validate(
        {"name": "support-llm", "regions": ("eu-west-1",), "bake": 600, "accelerator": "cpu", "analysed": True}
    )
    return [".".join(map(str, odd.where)) for odd in fleet(prometheus, **changes).conflicts_with(around)]


def test_those_who_cannot_say_who_they_are_are_told_with_their_place() -> None:
    at = "regions.eu-west-1.prometheus"
    assert places(TOKEN) == [f"{at}.auth.bearer", at]
    assert places({"url": URL, "tenant": "team-a"}) == [at]
    assert places(TOKEN, autoscale=None) == [f"{at}.auth.bearer"]
    assert places({**TOKEN, "keda": URL}) == [f"{at}.auth.bearer"]
    pair = {part: {"secret": {"name": "prometheus", "key": part}} for part in ("certificate", "key")}
    elsewhere = {**TOKEN, "keda": URL, "rollouts": {"url": URL, "auth": {"certificate": pair}}}
    assert places(elsewhere) == [f"{at}.rollouts.auth.certificate"]
