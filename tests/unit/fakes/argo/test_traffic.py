"""What the routers get told, and what happens when they cannot be told: `rollout/trafficrouting.go`."""

from __future__ import annotations

import pytest
from fakes.argo.scene import GATEWAY, NAME, Scene, canary

from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, VIRTUAL_SERVICES

HALF: list[Json] = [{"setWeight": 50}, {"pause": {}}]
WARM: list[Json] = [{"setCanaryScale": {"replicas": 2}}, {"pause": {}}]
HEADER = {"name": "testers", "match": [{"headerName": "x-tester", "headerValue": {"exact": "yes"}}]}
MIRROR = {"name": "shadow", "percentage": 35, "match": [{"path": {"prefix": "/"}}]}


def istio(**fields: object) -> Json:
    routing = {"istio": {"virtualService": {"name": NAME}}, "managedRoutes": [{"name": "testers"}, {"name": "shadow"}]}
    return canary(trafficRouting=routing, **fields)


def with_virtual_service(strategy: Json, routes: list[Json] | None = None) -> Scene:
    scene = Scene(strategy, ready=False)
    weighted = [{"destination": {"host": f"{NAME}-{arm}"}, "weight": 0} for arm in ("stable", "canary")]
    body = {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": NAME},
        "spec": {"hosts": [NAME], "http": routes or [{"name": "main", "route": weighted}]},
    }
    scene.cluster.create(VIRTUAL_SERVICES, body)
    scene.wait(30)
    scene.deploy("2")
    scene.wait(30)
    return scene


def routes_of(scene: Scene) -> list[Json]:
    scene.simulation.settle()
    routes: list[Json] = scene.cluster.get(VIRTUAL_SERVICES, NAME)["spec"]["http"]
    return routes


def weights(route: Json) -> list[int]:
    return [one["weight"] for one in route["route"]]


def rules_of(scene: Scene) -> list[Json]:
    scene.simulation.settle()
    rules: list[Json] = scene.cluster.get(HTTP_ROUTES, NAME)["spec"]["rules"]
    return rules


def test_every_rule_that_names_both_services_is_weighted_and_keeps_its_filters() -> None:
    scene = Scene(canary(steps=HALF))
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": f"{NAME}-canary", "port": 80}}}

    def second_rule(body: Json) -> None:
        rule = body["spec"]["rules"][0]
        rule["filters"] = [mirror]
        body["spec"]["rules"].append({"backendRefs": [dict(one) for one in rule["backendRefs"]]})

    scene.cluster.edit(HTTP_ROUTES, NAME, second_rule)
    scene.deploy("2")
    scene.wait(30)
    assert [[one["weight"] for one in rule["backendRefs"]] for rule in rules_of(scene)] == [[50, 50], [50, 50]]
    assert [one["type"] for one in rules_of(scene)[0]["filters"]] == ["RequestMirror"]


def test_a_route_says_while_its_canary_has_users() -> None:
    scene = Scene(canary(steps=HALF))
    label = "rollouts.argoproj.io/gatewayapi-canary"
    scene.deploy("2")
    scene.wait(30)
    assert scene.cluster.get(HTTP_ROUTES, NAME)["metadata"]["labels"][label] == "in-progress"
    scene.abort()
    assert label not in scene.cluster.get(HTTP_ROUTES, NAME)["metadata"].get("labels", {})


def test_a_plugin_that_does_not_start_freezes_a_new_version_that_was_observed() -> None:
    """argo-rollouts#3918. A changed template is noted before traffic is asked for: its generation does not lag.

    What tells is a replica set without pods, and a Progressing condition that outlives the deadline.
    """
    scene = Scene(canary(steps=HALF))
    scene.simulation.plugin_broken = True
    scene.deploy("2")
    scene.wait(3600)
    rollout = scene.rollout
    assert rollout["status"]["observedGeneration"] == str(rollout["metadata"]["generation"]) == "2"
    assert (scene.phase, scene.pods) == ("Progressing more replicas need to be updated", {"1": 4})
    assert scene.condition("Progressing") == ("True", "NewReplicaSetCreated")
    assert scene.replica_sets["2"]["spec"]["replicas"] == 0


def test_a_plugin_that_does_not_start_never_observes_any_other_change() -> None:
    scene = Scene(canary(steps=HALF))
    scene.simulation.plugin_broken = True
    scene.change(progressDeadlineSeconds=900)
    scene.wait(3600)
    rollout = scene.rollout
    assert (rollout["metadata"]["generation"], rollout["status"]["observedGeneration"]) == (2, "1")


def test_a_controller_that_is_down_observes_nothing() -> None:
    """A plugin that cannot be downloaded keeps the whole controller from starting."""
    scene = Scene(canary(steps=HALF))
    scene.simulation.controller_down = True
    scene.deploy("2")
    scene.wait(3600)
    assert scene.status["observedGeneration"] == "1"
    scene.simulation.controller_down = False
    scene.wait(30)
    assert (scene.phase, scene.weight) == ("Paused CanaryPauseStep", 50)


def test_errors_are_counted_logged_and_tried_again_ever_more_rarely() -> None:
    scene = Scene(canary(steps=HALF))
    scene.simulation.plugin_broken = True
    scene.deploy("2")
    scene.wait(3600)
    count = scene.simulation.reconcile_errors["default", NAME]
    assert 10 <= count <= 40
    assert f'rollout_reconcile_error{{name="{NAME}",namespace="default"}} {count}' in scene.simulation.metrics()
    assert "failed to get traffic router plugin argoproj-labs/gatewayAPI: unable to start" in scene.simulation.log[-1]
    scene.simulation.plugin_broken = False
    scene.wait(30)
    assert (scene.phase, scene.weight) == ("Paused CanaryPauseStep", 50)


def test_a_route_without_the_canary_freezes_the_status_too() -> None:
    scene = Scene(canary(steps=HALF))
    scene.cluster.edit(HTTP_ROUTES, NAME, lambda body: body["spec"]["rules"][0]["backendRefs"].pop())
    scene.deploy("2")
    scene.wait(60)
    assert scene.events("TrafficRoutingError") == ["backendRef was not found in httpRoute"]
    assert scene.status["phase"] == "Progressing"


def test_a_mirror_through_the_gateway_plugin_does_nothing_and_succeeds() -> None:
    """rollouts-plugin-trafficrouter-gatewayapi#32."""
    routing = GATEWAY | {"managedRoutes": [{"name": "shadow"}]}
    scene = Scene(canary(trafficRouting=routing, steps=[{"setMirrorRoute": MIRROR}, *HALF]))
    scene.deploy("2")
    scene.wait(30)
    assert scene.step == 2
    assert all("filters" not in rule for rule in rules_of(scene))


def test_before_version_1_10_a_mirror_through_a_plugin_is_refused() -> None:
    routing = GATEWAY | {"managedRoutes": [{"name": "shadow"}]}
    scene = Scene(canary(trafficRouting=routing, steps=[{"setMirrorRoute": MIRROR}, *HALF]))
    scene.simulation.mirrors = False
    assert scene.phase.startswith("Degraded InvalidSpec")
    assert scene.phase.endswith("SetMirrorRoute requires TrafficRouting, supports Istio only")


def test_a_route_by_header_holds_until_the_canary_has_no_pod() -> None:
    """argo-rollouts#4486: it does not come back by itself."""
    routing = GATEWAY | {"managedRoutes": [{"name": "testers"}]}
    steps = [{"setCanaryScale": {"replicas": 1}}, {"pause": {}}, {"setHeaderRoute": HEADER}, {"pause": {}}]
    scene = Scene(canary(trafficRouting=routing, steps=steps))
    scene.deploy("2")
    scene.wait(30)
    scene.resume()
    assert [one["name"] for one in rules_of(scene)[1]["backendRefs"]] == [f"{NAME}-canary"]
    headers = [{"type": "Exact", "name": "x-tester", "value": "yes"}]
    assert [one["headers"] for one in rules_of(scene)[1]["matches"]] == [headers]
    scene.simulation.crash("2")
    assert len(rules_of(scene)) == 1
    scene.simulation.crash("2", on=False)
    scene.wait(60)
    assert (scene.step, len(rules_of(scene))) == (3, 1)


def test_an_abort_takes_managed_routes_away() -> None:
    routing = GATEWAY | {"managedRoutes": [{"name": "testers"}]}
    steps = [{"setWeight": 50}, {"setHeaderRoute": HEADER}, {"pause": {}}]
    scene = Scene(canary(trafficRouting=routing, steps=steps))
    scene.deploy("2")
    scene.wait(30)
    assert len(rules_of(scene)) == 2
    scene.abort()
    assert (len(rules_of(scene)), scene.weight) == (1, 0)


def test_istio_gets_the_weights_of_its_destinations() -> None:
    scene = with_virtual_service(istio(steps=HALF))
    assert weights(routes_of(scene)[0]) == [50, 50]
    scene.abort()
    assert weights(routes_of(scene)[0]) == [100, 0]


def test_istio_weights_the_named_routes_only() -> None:
    def route(name: str) -> Json:
        arms = ("stable", "canary")
        return {"name": name, "route": [{"destination": {"host": f"{NAME}-{arm}"}, "weight": 7} for arm in arms]}

    strategy = istio(steps=HALF)
    strategy["canary"]["trafficRouting"]["istio"]["virtualService"]["routes"] = ["chat"]
    scene = with_virtual_service(strategy, [route("chat"), route("other")])
    assert [weights(one) for one in routes_of(scene)] == [[50, 50], [7, 7]]


def test_istio_subsets_get_weights_too() -> None:
    strategy = istio(steps=HALF)
    rule = {"name": NAME, "canarySubsetName": "canary", "stableSubsetName": "stable"}
    strategy["canary"]["trafficRouting"]["istio"]["destinationRule"] = rule
    arms = ("canary", "stable")
    routes = [{"route": [{"destination": {"host": NAME, "subset": arm}, "weight": 0} for arm in arms]}]
    assert weights(routes_of(with_virtual_service(strategy, routes))[0]) == [50, 50]


def test_istio_mirrors_what_matches_in_a_route_of_its_own() -> None:
    scene = with_virtual_service(istio(steps=[*WARM, {"setMirrorRoute": MIRROR}, *HALF]))
    scene.resume()
    shadow, main = routes_of(scene)
    assert (shadow["name"], main["name"]) == ("shadow", "main")
    assert shadow["mirror"] == {"host": f"{NAME}-canary"}
    assert shadow["mirrorPercentage"] == {"value": 35.0}
    assert weights(shadow) == [50, 50]


def test_a_mirror_before_the_first_pod_is_lost_at_once() -> None:
    scene = with_virtual_service(istio(steps=[{"setMirrorRoute": MIRROR}, *HALF]))
    assert (scene.step, [one["name"] for one in routes_of(scene)]) == (2, ["main"])


def test_istio_takes_the_mirror_away_when_nothing_is_to_match() -> None:
    without = {"name": "shadow", "percentage": 35}
    scene = with_virtual_service(istio(steps=[*WARM, {"setMirrorRoute": without}, *HALF]))
    scene.resume()
    assert [one["name"] for one in routes_of(scene)] == ["main"]


@pytest.mark.parametrize("share", [0, 5, 50, 100])
def test_the_status_says_the_weights_and_whose_they_are(share: int) -> None:
    scene = Scene(canary(steps=[{"setCanaryScale": {"replicas": 1}}, {"setWeight": share}, {"pause": {}}]))
    scene.deploy("2")
    scene.wait(30)
    status = scene.cluster.get(ROLLOUTS, NAME)["status"]
    said = status["canary"]["weights"]
    assert (said["canary"]["weight"], said["stable"]["weight"]) == (share, 100 - share)
    assert said["canary"]["podTemplateHash"] == status["currentPodHash"]
    assert said["stable"]["serviceName"] == f"{NAME}-stable"
