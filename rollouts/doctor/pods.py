"""Checks of pods: whether those of the Rollout are allowed, get a node and start, and whether the guard runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.argo.model import Rollout
from rollouts.cluster.capacity import headroom_in_quotas
from rollouts.doctor.controller import last_end
from rollouts.doctor.model import Observation, Snapshot, Unread, error, warning
from rollouts.kube.objects import (
    at,
    condition,
    container_states,
    is_ready,
    labels_of,
    name_of,
    said,
    time_at,
)
from rollouts.kube.pods import CRASH_LOOP, IMAGE_FAILURES, pod_problems
from rollouts.kube.resources import DEPLOYMENTS, PODS, RESOURCE_QUOTAS
from rollouts.manifests.conventions import GUARD, guard
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH as HASH


@error(
    "pods-refused",
    cause="the API server does not allow the pods: the quota has no room for a second version next to the first, "
    "or a policy, a service account or a priority class refuses them; only the replica set's events say so",
    remediation="raise the quota or lower the replicas, apply the set-up part of `tidegate rollout render`, or "
    "correct what the message names",
)
def _pods_refused(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    for replica_set in snapshot.replica_sets:
        failed = condition(replica_set, "ReplicaFailure") or {}
        if failed.get("status") == "True":
            yield f"{said(replica_set)} cannot make its pods", str(failed.get("message") or failed.get("reason"))
    pod, more = at(rollout, "spec", "template"), _pods_to_come(snapshot, rollout)
    for room in headroom_in_quotas(snapshot.all(RESOURCE_QUOTAS), pod) if pod else ():
        if room.pods < more:
            yield f"there is no room for {more} more pods of {said(rollout)}", room.bound_by


def _pods_to_come(snapshot: Snapshot, rollout: Json) -> int:
    """The pods that are missing from the height of a delivery, when both versions have their full size.

    As `promote --full` brings the new one up before the old one goes.
    """
    ro, dynamic = Rollout(rollout), at(rollout, "spec", "strategy", "canary", "dynamicStableScale")
    most = ro.replicas + 1 if dynamic else 2 * ro.replicas
    return most - sum(labels_of(one).get(HASH) in {ro.pod_hash, ro.stable_hash} for one in snapshot.pods)


NODE_COMES_WITHIN = timedelta(minutes=10)
"""A node that Karpenter or an autoscaler buys is there in a few minutes, with its GPU's driver."""


@error(
    "pods-unschedulable",
    cause="the scheduler finds no node for pods of this Rollout: GPUs that are taken, labels that no node has, or "
    "a taint that the pods do not tolerate",
    remediation="free or add nodes of the kind that the scheduler's message names, or correct the pod template",
)
def _pods_unschedulable(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    newest = Rollout(rollout).pod_hash
    waiting = [pod for pod in snapshot.pods if labels_of(pod).get(HASH) == newest and _waits(snapshot, pod)]
    if waiting:
        message = at(condition(waiting[0], "PodScheduled"), "message", default="no message")
        yield f"{len(waiting)} pods of {said(rollout)} wait for a node", f"{said(waiting[0])}: {message}"


def _waits(snapshot: Snapshot, pod: Json) -> bool:
    found = condition(pod, "PodScheduled") or {}
    since = time_at(found, "lastTransitionTime")
    is_late = since is None or snapshot.now - since > NODE_COMES_WITHIN
    return found.get("status") == "False" and found.get("reason") == "Unschedulable" and is_late


def _waiting(snapshot: Snapshot, reasons: frozenset[str]) -> Iterator[tuple[Json, Json]]:
    """A pod and the state of its container for each image that waits for one of these reasons."""
    seen = set()
    for pod in snapshot.pods:
        for state in container_states(pod):
            image = state.get("image", "")
            if at(state, "state", "waiting", "reason") in reasons and image not in seen:
                seen.add(image)
                yield pod, state


@error(
    "image-not-pulled",
    cause="the node cannot pull the image: no such tag, no credentials for the registry, or no way to it",
    remediation="try the reference with `tidegate engine show`; check imagePullSecrets and the node's way to "
    "the registry",
)
def _image_not_pulled(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for pod, state in _waiting(snapshot, IMAGE_FAILURES):
        waiting = state["state"]["waiting"]
        yield f"{said(pod)} waits for an image", f"{waiting['reason']}: {waiting.get('message') or state.get('image')}"


@error(
    "pod-crashes",
    cause="the engine ends again and again: too little memory, wrong arguments, or a model that does not load",
    remediation="read the log of its last run: kubectl logs --previous",
)
def _pod_crashes(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for pod, state in _waiting(snapshot, frozenset({CRASH_LOOP})):
        yield f"{said(pod)} crashes", *last_end(state)


@warning(
    "guard-absent",
    cause="the region's guard does not run as the spec says: not applied since, deleted, or without a right; a "
    "canary whose delivery process is gone keeps its users",
    remediation="apply the set-up part of `tidegate rollout render`; if the guard is there and not ready, read its "
    "log (kubectl logs deployment/NAME-guard)",
)
def _guard_absent(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    """A guard that the spec asks for and that is not there, runs from another image, or is not ready.

    It says that it is ready only when it has all its rights.
    """
    name = guard(snapshot.target.delivery)
    wanted = next((each for each in snapshot.target.rendered(DEPLOYMENTS) if name_of(each) == name), None)
    found = snapshot.named(DEPLOYMENTS, name)
    if not rollout or not wanted or (found is None and snapshot.unread(DEPLOYMENTS) is Unread.FORBIDDEN):
        return
    if found is None:
        yield (f"there is no Deployment {name}",)
        return
    image, running = _image(wanted), _image(found)
    pods = [pod for pod in snapshot.all(PODS) if labels_of(pod).get(GUARD) == snapshot.target.delivery]
    if image != running:
        yield f"{said(found)} runs from another image", f"found: {running}", f"expected: {image}"
    elif not any(map(is_ready, pods)):
        available = at(condition(found, "Available"), "message", default="it has no pod")
        why = pod_problems(pods) or ("it runs, and reports that it cannot guard" if pods else available)
        yield f"{said(found)} has no pod that is ready", why


def _image(deployment: Json) -> str:
    """Of its first container; a mesh puts its own behind it, into pods alone."""
    return str(at(deployment, "spec", "template", "spec", "containers", 0, "image", default=""))


CHECKS = (_pods_refused, _pods_unschedulable, _image_not_pulled, _pod_crashes, _guard_absent)
