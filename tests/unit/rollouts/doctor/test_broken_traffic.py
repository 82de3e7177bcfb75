"""Set-ups in which users, copies or evidence go elsewhere than the Rollout thinks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.clusters.doctor_region import NAME, PLUGIN, Region, fleet

from rollouts.kube.resources import (
    DEPLOYMENTS,
    HTTP_ROUTES,
    ROLLOUTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from tidegate.core.model import Json

STABLE, CANARY = f"{NAME}-stable", f"{NAME}-canary"
HASH = "rollouts-pod-template-hash"


def rule(region: Region, **fields: Any) -> None:
    """Somebody changes the one rule of the HTTPRoute."""
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(fields))


def last(region: Region, resource: Any, name: str, patch: Json) -> None:
    """Somebody undoes what the controller wrote, again and again."""
    region.at_last.append(lambda: region.cluster.patch(resource, name, patch))


# Fields and routers


async def test_a_field_that_does_not_exist_is_dropped_and_weights_are_blind(region: Region) -> None:
    region.strategy(trafficRouting={}, scaleDownDelaySeconds=None, minPodsPerReplicaSet=None)
    region.wait(60)
    assert await region.found() == {"weights-blind"}


async def test_what_kubectl_applied_tells_which_field_was_dropped(region: Region) -> None:
    wanted = region.cluster.get(ROLLOUTS, NAME)
    wanted = {key: wanted[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": NAME}}
    wanted["spec"]["strategy"]["canary"]["trafficRouting"] = {"gatewayAPI": {"httpRoute": NAME}}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(wanted)}
    region.strategy(trafficRouting={}, scaleDownDelaySeconds=None)
    region.rollout(lambda it: it["metadata"].setdefault("annotations", {}).update(applied))
    region.wait(60)
    (found,) = await region.examined()
    assert found.code == "field-dropped"
    assert found.evidence == ("applied and dropped: spec.strategy.canary.trafficRouting.gatewayAPI",)


async def test_weights_that_pods_cannot_make(region: Region) -> None:
    def basic(it: Json) -> None:
        steps = [{"setWeight": 5}, {"pause": {}}]
        it["spec"]["strategy"]["canary"] = {"steps": steps, "maxSurge": 1, "maxUnavailable": 0}

    region.rollout(basic)
    region.wait(60)
    assert await region.found() == {"weights-by-pods"}


# Routes


async def test_a_route_that_is_not_there(region: Region) -> None:
    region.cluster.delete(HTTP_ROUTES, NAME)
    region.wait(30)
    assert "route-missing" in await region.found()


async def test_a_route_that_is_looked_for_in_another_namespace(region: Region) -> None:
    region.strategy(trafficRouting={"plugins": {PLUGIN: {"httpRoute": NAME, "namespace": "default"}}})
    region.wait(30)
    found = {one.code: one for one in await region.examined()}
    assert found["route-missing"].what == f"there is no HTTPRoute {NAME} in namespace default"


async def test_copies_to_an_inference_pool(trial: Region) -> None:
    pool = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": NAME}
    rule(trial, filters=[{"type": "RequestMirror", "requestMirror": {"backendRef": pool}}])
    assert await trial.found() == {"route-to-pool"}


async def test_a_route_to_a_service_of_another_name(region: Region) -> None:
    rule(region, backendRefs=[{"name": STABLE, "port": 80}, {"name": "support-llm-preview", "port": 80}])
    assert await region.found() == {"route-without-service"}


async def test_a_route_whose_second_rule_goes_past_the_canary(region: Region) -> None:
    past = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
        "backendRefs": [{"name": STABLE, "port": 80}],
    }
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"].append(past))
    assert await region.found() == {"route-past-rollout"}


async def test_a_route_that_no_gateway_takes(region: Region) -> None:
    no = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no listener allows it"}
    status = {"status": {"parents": [{"parentRef": {"name": "public"}, "conditions": [no]}]}}
    region.cluster.patch(HTTP_ROUTES, NAME, status, subresource="status")
    (found,) = await region.examined()
    assert (found.code, "NotAllowedByListeners" in found.evidence[0]) == ("route-not-accepted", True)


async def test_a_route_to_an_inference_pool(region: Region) -> None:
    rule(region, backendRefs=[{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": NAME}])
    assert await region.found() == {"route-to-pool"}


async def test_a_route_whose_weights_somebody_else_writes(canary: Region) -> None:
    halves = [{"name": STABLE, "port": 80, "weight": 50}, {"name": CANARY, "port": 80, "weight": 50}]
    canary.at_last.append(lambda: rule(canary, backendRefs=halves))
    (found,) = await canary.examined()
    assert (found.code, "50 % of requests, not 5 %" in found.what) == ("weight-differs", True)


async def test_a_route_that_keeps_sessions(canary: Region) -> None:
    rule(canary, sessionPersistence={"type": "Cookie", "sessionName": "llm"})
    assert await canary.found() == {"share-sticks"}


async def test_copies_to_a_service_that_is_not_there(trial: Region) -> None:
    rule(trial, filters=[{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "shadow", "port": 80}}}])
    assert await trial.found() == {"mirror-nowhere"}


async def test_copies_that_nobody_ended(region: Region) -> None:
    rule(region, filters=[{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": CANARY, "port": 80}}}])
    assert await region.found() == {"mirror-left-over"}


async def test_a_virtual_service_that_is_not_there() -> None:
    region = Region(fleet(traffic="istio"))
    region.strategy(trafficRouting={"istio": {"virtualService": {"name": "gone", "routes": ["users"]}}})
    region.wait(30)
    assert "route-missing" in await region.found()


async def test_a_virtual_service_with_other_hosts() -> None:
    region = Region(fleet(traffic="istio"))
    routes = [{"destination": {"host": "elsewhere"}, "weight": 100}]
    last(region, VIRTUAL_SERVICES, NAME, {"spec": {"http": [{"name": "users", "route": routes}]}})
    assert await region.found() == {"route-without-service"}


# Steps that mirror or match headers


def mirror(**fields: Any) -> Json:
    return {"setMirrorRoute": {"name": "shadow", "percentage": 100, **fields}}


def steps_with(region: Region, *steps: Json) -> None:
    routing = {"plugins": {PLUGIN: {"httpRoute": NAME, "namespace": "llm"}}}
    if "istio" in region.cluster.get(ROLLOUTS, NAME)["spec"]["strategy"]["canary"]["trafficRouting"]:
        routing = {"istio": {"virtualService": {"name": NAME, "routes": ["users"]}}}
    managed = [{"name": name} for name in ("shadow", "beta")]
    region.strategy(trafficRouting=routing | {"managedRoutes": managed}, steps=list(steps))
    region.wait(60)


MATCH = {"match": [{"method": {"regex": ".*"}}]}
SCALED, PAUSE = {"setCanaryScale": {"replicas": 1}}, {"pause": {}}


async def test_a_mirror_by_the_plugin_is_refused_by_an_older_controller(region: Region) -> None:
    steps_with(region, SCALED, mirror(**MATCH), PAUSE)
    region.refused("steps[1].setMirrorRoute: Invalid value: SetMirrorRoute supports Istio only")
    assert await region.found() == {"mirror-refused", "rollout-invalid"}


async def test_a_mirror_by_the_plugin_does_nothing_under_a_newer_one(region: Region) -> None:
    def newer(it: Json) -> None:
        container = it["spec"]["template"]["spec"]["containers"][0]
        container["image"] = "quay.io/argoproj/argo-rollouts:v1.10.0-rc1"

    region.edit(DEPLOYMENTS, "argo-rollouts", newer, namespace="argo-rollouts")
    steps_with(region, SCALED, mirror(**MATCH), PAUSE)
    assert await region.found() == {"mirror-does-nothing"}


async def test_a_mirror_on_istio_without_a_match() -> None:
    region = Region(fleet(traffic="istio"))
    steps_with(region, SCALED, mirror(), PAUSE)
    assert await region.found() == {"mirror-without-match"}


async def test_a_mirror_on_istio_that_is_taken_away_again_is_right() -> None:
    region = Region(fleet(traffic="istio"))
    steps_with(region, SCALED, mirror(**MATCH), PAUSE, {"setMirrorRoute": {"name": "shadow"}}, {"setWeight": 5}, PAUSE)
    assert await region.found() == set()


async def test_a_route_that_is_in_no_managed_routes(region: Region) -> None:
    steps_with(region, SCALED, {"setHeaderRoute": {"name": "staff", "match": [{"headerName": "x-staff"}]}}, PAUSE)
    region.refused("steps[1].setHeaderRoute: Invalid value: Steps define a route that does not exist in managedRoutes")
    assert await region.found() == {"route-not-managed", "rollout-invalid"}


HEADER = {"setHeaderRoute": {"name": "beta", "match": [{"headerName": "x-beta", "headerValue": {"exact": "1"}}]}}


async def test_a_header_route_before_there_is_a_canary(region: Region) -> None:
    steps_with(region, HEADER, PAUSE, {"setWeight": 5}, PAUSE)
    assert await region.found() == {"header-route-lost"}


async def test_a_header_route_whose_canary_is_scaled_away(region: Region) -> None:
    steps_with(region, SCALED, HEADER, PAUSE, {"setCanaryScale": {"replicas": 0}}, PAUSE)
    assert await region.found() == {"header-route-lost"}


async def test_a_header_route_with_a_canary_behind_it_is_right(region: Region) -> None:
    steps_with(region, SCALED, HEADER, PAUSE, {"setWeight": 5}, PAUSE)
    assert await region.found() == set()


async def test_users_for_a_canary_that_was_scaled_to_nothing(region: Region) -> None:
    steps_with(region, {"setCanaryScale": {"replicas": 0}}, {"setWeight": 5}, PAUSE)
    assert await region.found() == {"canary-without-pods"}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"abortScaleDownDelaySeconds": None, "minPodsPerReplicaSet": 1}, set()),
        ({"abortScaleDownDelaySeconds": 300, "minPodsPerReplicaSet": None}, {"abort-cannot-finish"}),
        ({"abortScaleDownDelaySeconds": None, "minPodsPerReplicaSet": 2}, {"abort-cannot-finish"}),
    ],
)
async def test_a_stable_that_is_released_while_users_leave_it(region: Region, fields: Json, found: set[str]) -> None:
    region.strategy(dynamicStableScale=True, scaleDownDelaySeconds=None, **fields)
    region.wait(60)
    assert await region.found() == {"stable-released-early"} | found


async def test_a_previous_version_that_is_gone_at_once_is_a_note(region: Region) -> None:
    region.strategy(scaleDownDelaySeconds=30)
    region.wait(60)
    (found,) = await region.examined()
    assert (found.code, found.severity) == ("previous-not-kept-warm", "note")


# Services


async def test_a_service_that_is_not_there(region: Region) -> None:
    region.cluster.delete(SERVICES, CANARY)
    region.wait(30)
    assert await region.found() == {"service-missing", "rollout-invalid"}


async def test_one_service_for_both_versions(region: Region) -> None:
    region.strategy(canaryService=STABLE)
    region.wait(30)
    assert {"services-the-same", "rollout-invalid"} <= await region.found()


async def test_a_selector_that_nothing_matches(region: Region) -> None:
    region.edit(SERVICES, STABLE, lambda it: it["spec"]["selector"].update(app="chat"))
    assert await region.found() == {"selector-matches-nothing"}


async def test_a_selector_that_takes_in_other_pods(region: Region) -> None:
    labels = {"app": "llm", "team": "ml"}
    region.rollout(lambda it: it["spec"]["template"]["metadata"]["labels"].update(labels))
    region.wait(60)
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"promoteFull": True}}, subresource="status")
    region.wait(300)
    other = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "proxy", "image": "litellm:1"}]}}
    region.bring(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "litellm", "namespace": "llm"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": other},
        }
    )
    region.wait(60)

    def wide(it: Json) -> None:
        it["spec"]["selector"] = {"team": "ml"}

    region.at_last.append(lambda: region.edit(SERVICES, CANARY, wide))
    (found,) = await region.examined()
    assert (found.code, "litellm" in found.evidence[1]) == ("selector-too-wide", True)


async def test_selectors_that_overlap_while_two_versions_run(canary: Region) -> None:
    stable = canary.cluster.get(SERVICES, STABLE)["spec"]["selector"][HASH]
    last(canary, SERVICES, CANARY, {"spec": {"selector": {HASH: stable}}})
    assert await canary.found() == {"selectors-overlap"}


async def test_a_selector_without_the_controllers_hash(canary: Region) -> None:
    last(canary, SERVICES, CANARY, {"spec": {"selector": {HASH: None}}})
    assert await canary.found() == {"selectors-overlap"}


async def test_two_rollouts_with_one_service(region: Region) -> None:
    other = region.cluster.get(ROLLOUTS, NAME)
    metadata = {"name": "copy", "namespace": "llm"}
    template = other["spec"]["template"]
    template["metadata"]["labels"] = {"app": "copy"}
    spec = other["spec"] | {"replicas": 0, "selector": {"matchLabels": {"app": "copy"}}, "template": template}
    region.at_last.append(
        lambda: region.bring({key: other[key] for key in ("apiVersion", "kind")} | {"metadata": metadata, "spec": spec})
    )
    assert await region.found() == {"service-shared"}
