"""LeaderWorkerSets without their controller, which does not run here: the kind, and who makes their pods.

Groups are of one pod, as a Deployment has them; the status is as the real controller writes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cluster.bed import Bed
from cluster.others import kubectl
from cluster.their_rollout import TheirBackends

from rollouts.errors import FleetError
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import DEPLOYMENTS, LEADER_WORKER_SETS
from tidegate.core.model import Json

LOOK_SECONDS = 0.5
ENGINE = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: leaderworkersets.leaderworkerset.x-k8s.io}
spec:
  group: leaderworkerset.x-k8s.io
  scope: Namespaced
  names: {plural: leaderworkersets, kind: LeaderWorkerSet, singular: leaderworkerset, shortNames: [lws]}
  versions:
    - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema:
        {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"""
"""As an API server needs to know them to keep them."""


class TheirSets(TheirBackends):
    """Two LeaderWorkerSets behind two backends of one HTTPRoute."""

    def _deployment(self, name: str, version: str, replicas: int) -> Json:
        groups = {"size": 1, "workerTemplate": self._pods(version, name)}
        spec = {"replicas": replicas, "leaderWorkerTemplate": groups}
        return self._made(LEADER_WORKER_SETS.api_version, LEADER_WORKER_SETS.kind, name, spec)


@contextmanager
def groups_made(bed: Bed, region: str) -> Iterator[None]:
    """While it lasts LeaderWorkerSets get their pods."""
    kubectl(bed, region, "apply", "-f", "-", given=DEFINITION)
    kubectl(bed, region, "wait", "--for=condition=Established", "crd/leaderworkersets.leaderworkerset.x-k8s.io")
    ending = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_follow(bed.client(region), ending)))
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


async def _follow(client: KubeClient, ending: threading.Event) -> None:
    try:
        while not ending.is_set():
            with suppress(FleetError):
                for each in await client.list(LEADER_WORKER_SETS):
                    await _reconcile(client, each)
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await client.close()


async def _reconcile(client: KubeClient, found: Json) -> None:
    """One look: pods as the spec has them, and what became of those of before."""
    name, template = found["metadata"]["name"], found["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    selector = {"matchLabels": {"app": template["metadata"]["labels"]["app"]}}
    spec = {"replicas": found["spec"]["replicas"], "selector": selector, "template": template}
    made = await client.apply(
        {"apiVersion": "apps/v1", "kind": DEPLOYMENTS.kind, "metadata": {"name": name}, "spec": spec}, force=True
    )
    said = made.get("status") or {}
    if said.get("observedGeneration") != made["metadata"]["generation"]:
        return
    counts = {key: said.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")}
    status = {**counts, "observedGeneration": found["metadata"]["generation"]}
    if status != found.get("status"):
        await client.patch(LEADER_WORKER_SETS, name, {"status": status}, subresource="status")
