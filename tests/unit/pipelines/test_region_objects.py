"""What a region gets for a delivery: its stages as steps, its promises as analyses and monitors."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.fleet import IMAGE
from fakes.schemas import problems_in

from pipelines.plan.region_objects import region_objects, region_release
from pipelines.spec.delivery import Delivery
from rollouts.kube.resources import resource_of
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.model import Json
from tidegate.core.spec import parse_spec

ENGINE = Engine(version="7", digest="d" * 64, model="support-llm", image=IMAGE)
EXAMPLE = (Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml").read_text()


def delivery(*changes: tuple[str, str]) -> Delivery:
    """The example's, with texts of it replaced by others."""
    text = EXAMPLE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return parse_spec(text, Delivery, file="delivery.yaml")


def of(spec: Delivery, region: str = "us-east-1", *parts: RenderPart) -> tuple[Json, ...]:
    return rendered(spec, region, *parts)[0]


def rendered(
    spec: Delivery, region: str = "us-east-1", *parts: RenderPart, engine: Engine = ENGINE
) -> tuple[tuple[Json, ...], tuple[str, ...]]:
    assert isinstance(spec.fleet, ArgoFleetSpec)
    release = region_release(spec, region, engine)
    found = region_objects(spec, spec.fleet, release, parts=parts or tuple(RenderPart))
    return found.objects, found.left_out


def names(objects: tuple[Json, ...], kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in objects if each["kind"] == kind]


def test_everything_is_valid_to_the_letter() -> None:
    objects = of(delivery())
    assert {each["metadata"]["name"]: found for each in objects if (found := problems_in(each))} == {}


def test_every_promise_watches_the_whole_trial() -> None:
    objects = of(delivery())
    templates = names(objects, "AnalysisTemplate")
    assert templates == ["support-llm.availability-background", "support-llm.first-token-background"]
    analysis = objects[-1]["spec"]["strategy"]["canary"]["analysis"]
    assert [each["templateName"] for each in analysis["templates"]] == templates
    assert [each["name"] for each in analysis["args"]] == ["region", "pod-template-hash"]
    steps = objects[-1]["spec"]["strategy"]["canary"]["steps"]
    assert steps[analysis["startingStep"]] == {"setWeight": 5}


@pytest.mark.parametrize(
    ("addresses", "rollouts", "keda"),
    [
        ("https://out.example.com", "https://out.example.com", "https://out.example.com"),
        ("{url: https://out.example.com}", "https://out.example.com", "https://out.example.com"),
        ("{url: https://out.example.com, rollouts: http://in:9090}", "http://in:9090", "http://in:9090"),
        ("{url: https://out.example.com, keda: http://in:9090}", "https://out.example.com", "http://in:9090"),
        ("{url: https://out.example.com, rollouts: http://a:1, keda: http://b:2/p}", "http://a:1", "http://b:2/p"),
    ],
)
def test_everybody_who_asks_prometheus_gets_the_address_that_he_can_reach(
    addresses: str, rollouts: str, keda: str
) -> None:
    spec = delivery(("https://prometheus.us-east-1.example.com", addresses))
    assert isinstance(spec.fleet, ArgoFleetSpec)
    assert spec.fleet.regions["us-east-1"].prometheus.url == "https://out.example.com"
    objects = of(spec)
    templates = [each for each in objects if each["kind"] == "AnalysisTemplate"]
    given = {arg["value"] for each in templates for arg in each["spec"]["args"] if arg["name"] == "prometheus"}
    (scaled,) = (each for each in objects if each["kind"] == "ScaledObject")
    asked = {trigger["metadata"]["serverAddress"] for trigger in scaled["spec"]["triggers"]}
    assert (given, asked) == ({rollouts}, {keda})


def test_no_analysis_stops_a_rollout_for_an_alert_that_wakes_nobody() -> None:
    promise = "{name: first-token, objective: 99, ttft: {below: 500ms}}"
    objects, left_out = rendered(delivery((promise, "{name: start, objective: 95, start: {below: 5m}}")))
    assert names(objects, "AnalysisTemplate") == ["support-llm.availability-background"]
    assert left_out == ("support-llm-start has no alert that pages, so no analysis stops a rollout for it",)


def test_stages_become_steps() -> None:
    release = region_release(delivery(), "eu-west-1", ENGINE)
    assert (release.mirror, release.weights) == (100, (5, 25, 50))
    shadowless = "  - shadow: {percent: 100, at_least: 5m, within: 30m, gates: [latency, errors, agreement]}\n"
    release = region_release(delivery((shadowless, "")), "eu-west-1", ENGINE)
    assert (release.mirror, release.weights) == (0, (5, 25, 50))


def test_what_each_delivery_applies_asks_for_no_rights_that_the_set_up_does_not_give() -> None:
    spec = delivery()
    role = next(each for each in of(spec, "eu-west-1", RenderPart.SETUP) if each["kind"] == "Role")
    granted = [(rule["apiGroups"][0], rule["resources"][0], rule) for rule in role["rules"]]
    for each in of(spec, "eu-west-1", RenderPart.SERVING):
        resource, name = resource_of(each), each["metadata"]["name"]
        rules = [rule for group, plural, rule in granted if (group, plural) == (resource.group, resource.plural)]
        for verb in ("get", "create", "patch"):
            assert any(verb in rule["verbs"] and (name in rule.get("resourceNames", [name])) for rule in rules), (
                f"{verb} {resource.plural}/{name}"
            )


def test_what_an_administrator_applies_is_the_same_for_every_engine() -> None:
    other = ENGINE.model_copy(update={"version": "8", "digest": "e" * 64, "image": IMAGE[:-1] + "0"})
    assert rendered(delivery(), "eu-west-1", RenderPart.SETUP, engine=other)[0] == of(
        delivery(), "eu-west-1", RenderPart.SETUP
    )


def test_nothing_secret_is_written() -> None:
    spec = delivery(("pod: {", "pod: {cache: {secret: store}, "))
    container = of(spec)[-1]["spec"]["template"]["spec"]["containers"][0]
    token = next(each for each in container["env"] if each["name"] == "TIDEGATE_WEIGHTS_TOKEN")
    assert token == {
        "name": "TIDEGATE_WEIGHTS_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "store", "key": "token"}},
    }
    assert not [each for each in of(spec) if each["kind"] == "Secret"]
