"""A simulated controller of LeaderWorkerSets on a `FakeCluster`; their pods are run by `fakes.argo.simulation`.

It follows kubernetes-sigs/lws (`pkg/controllers/leaderworkerset_controller.go`, `pod_controller.go`,
`pkg/webhooks/pod_webhook.go`, about v0.11) as far as a fleet meets it: a leader and its workers for each replica with
the labels and variables that they get, a group that is made again as a whole when a container of it restarted
(`RecreateGroupOnPodRestart`), and the counts of the status. Not simulated: StatefulSets in between (a leader is owned
by its set, workers by their leader), updates of a template, subgroups, exclusive topologies, the headless Service.
"""

from __future__ import annotations

import copy

from fakes.argo.objects import reference_to
from fakes.argo.workloads import is_ready
from fakes.kube.cluster import FakeCluster
from fakes.kube.store import Event

from rollouts.kube.resources import LEADER_WORKER_SETS, PODS
from rollouts.manifests.conventions import SET_NAME, WORKER_INDEX
from tidegate.core.model import Json

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
REACTION_SECONDS = 0.05
RECREATION_SECONDS = 1.5
"""Until a group whose container restarted is made again."""


class LeaderWorkerSets:
    """One cluster's controller; it reacts by itself to whatever is written."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._called = False
        self.down = False
        """Whether the controller is not there."""
        self.made = 0
        """Groups that it has made."""
        cluster.on_change(self._note)

    def _note(self, event: Event) -> None:
        if event.kind.plural in (LEADER_WORKER_SETS.plural, PODS.plural):
            self._soon(REACTION_SECONDS)

    def _soon(self, seconds: float) -> None:
        if not self._called:
            self._called = True
            self._cluster.time.call_later(seconds, self._react)

    def _react(self) -> None:
        self._called = False
        if not self.down:
            for each in self._cluster.list(LEADER_WORKER_SETS, namespace=""):
                self._reconcile(each)

    def _reconcile(self, found: Json) -> None:
        template, name = found["spec"]["leaderWorkerTemplate"], found["metadata"]["name"]
        replicas = int(found["spec"].get("replicas", 1))
        ready = 0
        for group in range(replicas):
            pods = self._group(found, template, group)
            if any(_restarted(pod) for pod in pods):
                self._cluster.time.call_later(RECREATION_SECONDS, lambda at=f"{name}-{group}": self._end(found, at))
            ready += all(is_ready(pod) for pod in pods)
        for pod in self._cluster.list(PODS, labels=f"{SET_NAME}={name}", namespace=found["metadata"]["namespace"]):
            labels = pod["metadata"]["labels"]
            if int(labels[GROUP_INDEX]) >= replicas and labels[WORKER_INDEX] == "0":
                self._end(found, pod["metadata"]["name"])
        self._report(found, replicas, ready)

    def _group(self, found: Json, template: Json, group: int) -> list[Json]:
        """Its pods, made where they are missing: workers once there is a leader (`LeaderCreated`)."""
        first = self._pod(found, (group, 0), found)
        rest = range(1, int(template.get("size", 1)))
        return [first, *(self._pod(found, (group, each), first) for each in rest)]

    def _pod(self, found: Json, place: tuple[int, int], owner: Json) -> Json:
        """The one of that group and worker index."""
        namespace, (group, worker) = found["metadata"]["namespace"], place
        templates = found["spec"]["leaderWorkerTemplate"]
        template = (
            templates["workerTemplate"] if worker else templates.get("leaderTemplate") or templates["workerTemplate"]
        )
        name = f"{found['metadata']['name']}-{group}{f'-{worker}' if worker else ''}"
        there = self._cluster.find(PODS, name, namespace=namespace)
        if there is not None:
            return there
        self.made += worker == 0
        set_name = found["metadata"]["name"]
        labels = {SET_NAME: set_name, GROUP_INDEX: str(group), WORKER_INDEX: str(worker)}
        made = copy.deepcopy(template)
        said = made.get("metadata") or {}
        spec = made["spec"]
        variables = {
            "LWS_LEADER_ADDRESS": f"{set_name}-{group}.{set_name}.{namespace}",
            "LWS_GROUP_SIZE": str(found["spec"]["leaderWorkerTemplate"].get("size", 1)),
            "LWS_WORKER_INDEX": str(worker),
        }
        for container in spec["containers"]:
            container.setdefault("env", []).extend({"name": key, "value": value} for key, value in variables.items())
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {**said.get("labels", {}), **labels},
                "annotations": said.get("annotations", {}),
                "ownerReferences": [reference_to(owner)],
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        return self._cluster.create(PODS, body, namespace=namespace)

    def _end(self, found: Json, leader: str) -> None:
        """A leader, whose workers go with it."""
        namespace = found["metadata"]["namespace"]
        if self._cluster.find(PODS, leader, namespace=namespace) is not None:
            self._cluster.delete(PODS, leader, namespace=namespace)

    def _report(self, found: Json, replicas: int, ready: int) -> None:
        status = {
            "replicas": replicas,
            "readyReplicas": ready,
            "updatedReplicas": replicas,
            "observedGeneration": found["metadata"]["generation"],
        }
        if found.get("status") != status:
            self._cluster.update_status(LEADER_WORKER_SETS, {**found, "status": status})


def _restarted(pod: Json) -> bool:
    return any(each.get("restartCount") for each in (pod.get("status") or {}).get("containerStatuses") or [])
