"""Deliveries that Argo Workflows carries, step by step in pods, told from their users' side."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.stories import BACK_SECONDS, CANARY, UNGATED, Told, late, told_of
from fakes.waiting import until

from pipelines.workflow.model import workflow
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES, PODS, WORKFLOWS
from rollouts.manifests.conventions import cluster_wide
from tidegate.core.model import Json

SECRET = "tidegate-clusters"
OF = "workflows.argoproj.io/workflow"
"""The label of a workflow's pods."""
ENDED = ("Succeeded", "Failed", "Error")


class WorkflowModel(DeliveredModel):
    """A model whose deliveries run in pods of the first region's cluster: addresses are those that pods know."""

    def __init__(self, bed: Bed, name: str, stages: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(bed, name, [[next(iter(bed.around.clusters))]])
        there = bed.around.workflows
        assert there is not None, "no place for workflows is known"
        self.change(
            stages=list(stages),
            workflow={
                "image": bed.toolchain,
                "tracking_uri": f"http://{there.address}",
                "kubeconfig": SECRET,
                "patience": "5s",
                "cpu": "100m",
                "memory": "1Gi",
                "scratch": "1Gi",
            },
        )
        bed.ask(self.regions[0], lambda client: client.apply(_secret(bed), force=True))

    def submit(self, version: str, delivery: str = "") -> str:
        """As `rollout render --as workflow | kubectl apply -f -` and `argo submit`; the workflow's name."""
        printed = self.start("rollout", "render", "delivery.yaml", "--as", "workflow").finish()
        assert printed.code == 0, printed.err
        wanted = workflow(self.name, self.bed.namespace, version=version)
        if delivery:
            wanted["spec"]["arguments"]["parameters"].append({"name": "delivery", "value": delivery})

        async def send(client: KubeClient) -> str:
            for each in yaml.safe_load_all(printed.out):
                await client.apply(each)
            return str((await client.create(WORKFLOWS, wanted))["metadata"]["name"])

        name: str = self.bed.ask(self.regions[0], send)
        for part in ("workflows", "steps"):
            for kind in (ADMISSION_POLICIES, ADMISSION_BINDINGS):
                self.bed.leaves_behind(self.regions[0], kind, cluster_wide(self.bed.namespace, f"{self.name}-{part}"))
        return name

    def workflow(self, name: str) -> Json:
        return self.bed.ask(self.regions[0], lambda client: client.get(WORKFLOWS, name))

    def ended(self, name: str) -> str:
        """The workflow's phase, once it is over."""

        def phase() -> str | None:
            found = self.workflow(name).get("status", {}).get("phase")
            return found if found in ENDED else None

        return until(f"workflow {name} is over", phase)

    def shut_down(self, name: str, how: str) -> None:
        """What `argo stop` and `argo terminate` send."""
        self.bed.ask(self.regions[0], lambda client: client.patch(WORKFLOWS, name, {"spec": {"shutdown": how}}))

    def meets_users(self, version: str, name: str) -> None:
        """Users of the region are answered by that version."""

        def met() -> bool:
            phase = self.workflow(name).get("status", {}).get("phase")
            assert phase not in ENDED, f"the workflow ended before: {phase}"
            return any(asked.version == version for asked in self.asked())

        until(f"users meet version {version}", met)

    def delete_running_pod(self, name: str) -> None:
        """The pod of the step that is at work."""

        async def delete(client: Any) -> None:
            found = await client.list(PODS, labels=f"{OF}={name}")
            (running,) = (pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Running")
            await client.delete(PODS, running)

        self.bed.ask(self.regions[0], delete)

    def _place(self, region: str) -> dict[str, Any]:
        inside = f"{self.bed.namespace}.svc.cluster.local"
        return {
            "context": self.bed.around.clusters[region].context,
            "entry": self.bed.entries[region],
            "stable_url": f"http://{self.name}-stable.{inside}",
            "canary_url": f"http://{self.name}-canary.{inside}",
            "prometheus": self.bed.around.clusters[region].prometheus_inside,
        }


PATIENT = ({"canary": {"weights": [50], "at_least": "20s", "within": "15m", "gates": ["latency", "errors"]}},)


def workflow_delivers(bed: Bed) -> Told:
    """A healthy version, step by step in pods; the pod of the canary step is deleted in the middle."""
    model, first = _served(bed, "workflow-delivers", [*UNGATED, *PATIENT])
    with model.users():
        second, name = _halfway(model)
        model.delete_running_pod(name)
        assert model.ended(name) == "Succeeded", model.delivery()
        model.exactly(second, previous=first)
    return told_of(model, "workflow Succeeded", note="the pod of the canary step was deleted meanwhile")


def workflow_takes_back(bed: Bed) -> Told:
    """A slow version: the canary step takes users back itself, and the workflow fails."""
    model, first = _served(bed, "workflow-takes-back", CANARY)
    with model.users():
        bad = model.version(ttft=0.09)
        assert model.ended(model.submit(bad)) == "Failed"
        assert model.delivery().outcome == "rolled-back", model.delivery()
        seconds = late(model, bad)
        model.exactly(first)
    return told_of(model, "workflow Failed", note=f"last user on the canary {seconds:+.2f} s from the verdict")


def workflow_stopped(bed: Bed) -> Told:
    """`argo stop` with half of the users on the canary: the exit handler brings them back."""
    model, first = _served(bed, "workflow-stopped", PATIENT)
    with model.users():
        second, name = _halfway(model)
        model.shut_down(name, "Stop")
        stopped = model.now()
        model.ended(name)
        model.exactly(first)
        seconds = max(asked.started for asked in model.asked() if asked.version == second) - stopped
    assert seconds <= BACK_SECONDS, f"users were back {seconds:.1f} s after the stop"
    return told_of(model, "workflow Failed", note=f"users back {seconds:.1f} s after the stop")


def workflow_terminated(bed: Bed) -> Told:
    """`argo terminate` leaves everything as it is; a person carries the delivery on."""
    model, first = _served(bed, "workflow-terminated", PATIENT)
    with model.users():
        second, name = _halfway(model)
        model.shut_down(name, "Terminate")
        model.ended(name)
        model.start("resume", model.delivery().id).finish()
        model.exactly(second, previous=first)
    return told_of(model, "delivered", note="workflow terminated, and carried on by `tidegate resume`")


TOGETHER: dict[str, Callable[[Bed], Told]] = {
    story.__name__: story for story in (workflow_delivers, workflow_takes_back, workflow_stopped, workflow_terminated)
}


def _halfway(model: WorkflowModel) -> tuple[str, str]:
    """One more version, and the name of its workflow, which has come to where users meet it."""
    second = model.version()
    name = model.submit(second)
    model.meets_users(second, name)
    return second, name


def _served(bed: Bed, name: str, stages: Sequence[Mapping[str, Any]]) -> tuple[WorkflowModel, str]:
    model = WorkflowModel(bed, name, stages)
    first = model.version("champion")
    model.serve(first)
    return model, first


def _secret(bed: Bed) -> Json:
    """The kubeconfig with addresses that pods reach."""
    there = bed.around.workflows
    assert there is not None
    said = json.loads(bed.kubeconfig_text())
    for cluster in said["clusters"]:
        cluster["cluster"]["server"] = there.servers[cluster["name"]]
    data = base64.b64encode(json.dumps(said).encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": bed.namespace},
        "data": {"config": data},
    }
