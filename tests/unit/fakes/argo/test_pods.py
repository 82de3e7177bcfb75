"""Pods that start, and pods that do not: what the Rollout, its replica sets and the pods then say."""

from __future__ import annotations

from fakes.argo.scene import Scene, canary
from fakes.kube.kinds import Kind
from fakes.kube.refusal import Refusal

from rollouts.kube.model import Json
from rollouts.kube.resources import DEPLOYMENTS, PODS, PRIORITY_CLASSES, ROLLOUTS

GPU = "nvidia.com/gpu"
HALF: list[Json] = [{"setWeight": 50}, {"pause": {}}]
ROLES = {"canaryMetadata": {"labels": {"role": "canary"}}, "stableMetadata": {"labels": {"role": "stable"}}}


def canary_pod(scene: Scene) -> Json:
    scene.simulation.settle()
    pods = scene.cluster.list(PODS, labels="tidegate.dev/version=2")
    found: Json = pods[0]
    return found


def waiting(pod: Json) -> str:
    return str(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"])


def roles(scene: Scene) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pod in scene.cluster.list(PODS):
        labels = pod["metadata"]["labels"]
        found.setdefault(labels["tidegate.dev/version"], set()).add(labels.get("role", ""))
    return found


def test_a_pod_is_pending_running_and_ready_in_its_time() -> None:
    scene = Scene()
    scene.simulation.slow("2", 600)
    scene.deploy("2")
    assert canary_pod(scene)["status"]["phase"] == "Running"
    scene.wait(599)
    assert (scene.phase, scene.step) == ("Progressing more replicas need to be updated", 0)
    scene.wait(1)
    assert scene.step == 1


def test_pods_without_room_wait_and_the_rollout_is_late_after_ten_minutes() -> None:
    scene = Scene()
    scene.simulation.unschedulable("2")
    scene.deploy("2")
    scheduled = canary_pod(scene)["status"]["conditions"][0]
    assert (scheduled["reason"], "nvidia.com/gpu" in scheduled["message"]) == ("Unschedulable", True)
    scene.wait(600)
    assert scene.phase.startswith("Degraded ProgressDeadlineExceeded: ReplicaSet")
    scene.simulation.unschedulable("2", on=False)
    scene.wait(30)
    assert scene.phase == "Paused CanaryPauseStep"


def test_a_late_rollout_may_abort_itself() -> None:
    scene = Scene(progressDeadlineSeconds=120, progressDeadlineAbort=True)
    scene.simulation.unschedulable("registry.example/engine:2")
    scene.deploy("2")
    scene.wait(200)
    assert scene.status["abort"] is True
    assert scene.phase == "Degraded RolloutAborted: Rollout aborted update to revision 2"
    assert "has timed out progressing" in scene.events("RolloutAborted")[0]


def test_a_crash_is_told_by_the_container() -> None:
    scene = Scene()
    scene.simulation.crash("2")
    scene.deploy("2")
    scene.wait(60)
    assert waiting(canary_pod(scene)) == "CrashLoopBackOff"
    assert scene.step == 0


def test_an_image_that_cannot_be_pulled_is_told_by_the_container() -> None:
    scene = Scene()
    scene.simulation.image_pull_fails("registry.example/engine:2")
    scene.deploy("2")
    scene.wait(60)
    assert waiting(canary_pod(scene)) == "ImagePullBackOff"
    assert canary_pod(scene)["status"]["phase"] == "Pending"


def test_a_stable_that_crashes_makes_a_healthy_rollout_progress_again() -> None:
    scene = Scene()
    scene.simulation.crash("1")
    assert scene.phase == "Progressing updated replicas are still becoming available"
    assert scene.condition("Healthy") == ("False", "RolloutHealthy")
    scene.simulation.crash("1", on=False)
    scene.wait(30)
    assert scene.phase == "Healthy"


def test_pods_are_available_after_their_seconds_of_being_ready() -> None:
    scene = Scene(ready=False, minReadySeconds=60)
    scene.wait(79)
    assert scene.status["readyReplicas"] == 4
    assert "availableReplicas" not in scene.status
    scene.wait(1)
    assert scene.phase == "Healthy"


def test_pods_carry_the_role_they_play() -> None:
    scene = Scene(canary(steps=HALF, scaleDownDelaySeconds=3600, **ROLES))
    assert roles(scene) == {"1": {"stable"}}
    scene.deploy("2")
    scene.wait(30)
    assert roles(scene) == {"1": {"stable"}, "2": {"canary"}}
    scene.resume()
    scene.wait(60)
    assert roles(scene) == {"1": {""}, "2": {"stable"}}


def test_a_template_copied_with_its_role_is_a_new_version() -> None:
    """`undo` of the kubectl plugin patches the stable replica set's template as it is (`cmd/undo/undo.go`)."""
    scene = Scene(canary(steps=HALF, **ROLES))
    scene.deploy("2")
    scene.wait(30)
    template = scene.replica_sets["1"]["spec"]["template"]
    del template["metadata"]["labels"]["rollouts-pod-template-hash"]
    scene.change(template=template)
    assert scene.status["currentPodHash"] != scene.status["stableRS"]


def test_nodes_have_so_much_room() -> None:
    scene = Scene(ready=False)
    resources = {"limits": {GPU: "1"}}
    scene.cluster.edit(
        ROLLOUTS, "llm", lambda body: body["spec"]["template"]["spec"]["containers"][0].update(resources=resources)
    )
    scene.add_node("gpu-1", **{GPU: "4"})
    scene.wait(30)
    assert scene.phase == "Healthy"
    scene.deploy("2")
    scene.wait(30)
    message = canary_pod(scene)["status"]["conditions"][0]["message"]
    assert message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    scene.add_node("gpu-2", **{GPU: "1"})
    scene.wait(30)
    assert canary_pod(scene)["spec"]["nodeName"] == "gpu-2"


def test_a_taint_keeps_pods_away() -> None:
    scene = Scene(ready=False)
    scene.add_node("gpu-1", taints=({"key": GPU, "value": "true", "effect": "NoSchedule"},), pods="10")
    scene.wait(30)
    assert "untolerated taint {nvidia.com/gpu: true}" in scene.events("FailedScheduling")[0]


def test_placeholders_make_room_for_engines() -> None:
    scene = Scene(ready=False)
    for name, value in (("engines", 1000), ("placeholders", -10)):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        scene.cluster.create(PRIORITY_CLASSES, body)
    scene.add_node("gpu-1", pods="5")
    scene.cluster.create(DEPLOYMENTS, placeholders(1))
    scene.cluster.edit(
        ROLLOUTS, "llm", lambda body: body["spec"]["template"]["spec"].update(priorityClassName="engines")
    )
    scene.wait(60)
    assert scene.cluster.get(DEPLOYMENTS, "warm")["status"]["availableReplicas"] == 1
    scene.deploy("2")
    scene.wait(30)
    assert scene.step == 1
    assert "availableReplicas" not in scene.cluster.get(DEPLOYMENTS, "warm")["status"]


def placeholders(count: int) -> Json:
    labels = {"app": "warm", "tidegate.dev/version": "none"}
    spec = {"priorityClassName": "placeholders", "containers": [{"name": "pause", "image": "pause:3.10"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "warm"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def test_a_quota_is_told_by_the_replica_set_and_the_rollout() -> None:
    scene = Scene()

    def at_most_four(verb: str, kind: Kind, body: Json) -> None:
        if verb == "create" and kind.plural == "pods" and len(scene.cluster.list(PODS)) >= 4:
            raise Refusal(403, "Forbidden", "exceeded quota: gpus")

    scene.cluster.admission.append(at_most_four)
    scene.deploy("2")
    assert scene.condition("ReplicaFailure") == ("True", "FailedCreate")
    assert "exceeded quota" in scene.events("FailedCreate")[0]
