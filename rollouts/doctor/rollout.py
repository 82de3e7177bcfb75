"""Checks of the Rollout, its Services, its route and its pods: whether it serves, gets on, and leads to the right pods.

The Rollout is one that tidegate rendered: its Services and its route have the names of `rollouts.manifests`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.argo.model import ABORTED, INVALID_SPEC, UNDECIDED, Rollout, waiting_for_controller
from rollouts.cluster.snapshot import foreign_version
from rollouts.doctor.model import Observation, Snapshot, Unread, error, note, warning
from rollouts.doctor.region import last_end, step_of
from rollouts.kube.objects import (
    CRASH_LOOP,
    IMAGE_FAILURES,
    Labels,
    at,
    condition,
    container_states,
    is_ready,
    labels_of,
    name_of,
    pod_problems,
    said,
    selects,
    time_at,
    written,
)
from rollouts.kube.resources import DEPLOYMENTS, PODS, SERVICES
from rollouts.manifests.conventions import GUARD, guard
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH as HASH

LONG_PAUSE = timedelta(days=1)


@note(
    "nothing-deployed",
    cause="no delivery has been here yet",
    remediation="`tidegate deliver` applies everything that the region needs",
)
def _nothing_deployed(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    if not rollout:
        yield (f"there is no Rollout {snapshot.target.delivery} in namespace {snapshot.namespace}",)


@error(
    "nothing-serves",
    cause="no pod of the Rollout is available: users get errors",
    remediation="look at the pods; `kubectl argo rollouts undo` brings back the last revision that was available",
)
def _nothing_serves(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    ro = Rollout(rollout)
    if ro.replicas and ro.stable_hash and not ro.status.get("availableReplicas"):
        yield f"{said(rollout)} has no available pod", f"spec.replicas: {ro.replicas}"


@error(
    "rollout-invalid",
    cause="the controller refuses the Rollout, or a Service that it names is not there: nothing happens",
    remediation="correct what the message names",
)
def _rollout_invalid(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    if found := condition(rollout, INVALID_SPEC):
        yield f"{said(rollout)} is not valid", str(found.get("message", ""))


@error(
    "rollout-aborted",
    cause="a rollout was aborted and its template not set back: it still names the version that was refused, and "
    "the phase stays Degraded",
    remediation="`kubectl argo rollouts undo` to the stable's revision sets the template back; "
    "`kubectl argo rollouts retry rollout` tries the same version again",
)
def _rollout_aborted(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    progressing = {} if condition(rollout, INVALID_SPEC) else condition(rollout, "Progressing") or {}
    if progressing and (Rollout(rollout).aborted or progressing.get("reason") == ABORTED):
        yield f"{said(rollout)} is aborted", str(progressing.get("message") or "status.abort: true")


@warning(
    "paused",
    cause="a rollout was left at a pause, or an analysis had too little evidence: two versions run, nobody decides",
    remediation="look at the analysis run, if there is one; then `kubectl argo rollouts promote` or `abort`",
)
def _paused(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    ro = Rollout(rollout)
    if ro.aborted or waiting_for_controller(rollout):
        return
    for pause in ro.pause_conditions:
        since = time_at(pause, "startTime")
        if pause.get("reason") in UNDECIDED or (since and snapshot.now - since > LONG_PAUSE):
            how_long = f" for {snapshot.since(since)}" if since else ""
            yield f"{said(rollout)} is paused at {step_of(ro)}", f"{pause.get('reason')}{how_long}"


@error(
    "abort-cannot-finish",
    cause="since Argo Rollouts 1.9.0 an aborted canary with dynamicStableScale keeps users for as long as it keeps "
    "pods, and these fields keep them (argo-rollouts#4898, #4841); its status says RolloutAborted and no more",
    remediation="set dynamicStableScale: false, or leave out abortScaleDownDelaySeconds and minPodsPerReplicaSet; "
    "after an abort that hangs, bring the stable's template back: kubectl argo rollouts undo",
)
def _abort_cannot_finish(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    canary = at(rollout, "spec", "strategy", "canary", default={})
    # 1 is no more than any weight needs; with a delay of 0 the canary shrinks once the stable is whole.
    least = {"abortScaleDownDelaySeconds": 1, "minPodsPerReplicaSet": 2}
    keeps = [f"{field}: {canary[field]}" for field in least if (canary.get(field) or 0) >= least[field]]
    if canary.get("dynamicStableScale") and keeps:
        seen = f"dynamicStableScale: true, {', '.join(keeps)}"
        yield f"an abort of {said(rollout)} leaves users on the version that failed", seen


@warning(
    "reverted-by",
    cause="somebody else than tidegate wrote the version that the Rollout asks for, such as a GitOps tool that "
    "applies what is in Git: the next delivery ends the same way",
    remediation="`tidegate rollout render --as argo-ignore` prints what keeps Argo CD from it; for others, take the "
    "Rollout out of what they apply, and deliver again",
)
def _reverted_by(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    if not snapshot.is_empty and (found := foreign_version(rollout, stable="")):
        yield f"{said(rollout)} was written by somebody else", found.reason


@error(
    "service-wrong-pods",
    cause="the Service selects no pod of the Rollout (requests get 503), pods of another workload, or both "
    "versions at once, so that no weight separates them",
    remediation="make the selector a part of the pod template's labels that only this Rollout's pods have, and "
    "stop whoever removes rollouts-pod-template-hash from it",
)
def _service_wrong_pods(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    labels: Labels = at(rollout, "spec", "template", "metadata", "labels", default={})
    mine = {name_of(pod) for pod in snapshot.pods}
    others = [pod for pod in snapshot.all(PODS) if name_of(pod) not in mine]
    routes = snapshot.target.routes
    named = [snapshot.named(SERVICES, name) for name in (routes.stable, routes.canary)] if rollout else []
    pair = [service for service in named if service]
    for service in pair:
        selector: Labels = at(service, "spec", "selector", default={})
        # No other workload's pods have the controller's part of the selector, and no template has it.
        own_part = {key: value for key, value in selector.items() if key != HASH}
        also = sorted(name_of(pod) for pod in others if selects(selector, labels_of(pod)))
        if not selects(own_part, labels):
            told = (f"selector: {written(own_part)}", f"labels of the pod template: {written(labels)}")
            yield f"{said(service)} selects no pod of {said(rollout)}", *told
        elif also:
            told = (f"selector: {written(selector)}", f"also selected: {', '.join(also[:3])}")
            yield f"{said(service)} selects pods that are not of {said(rollout)}", *told
    hashes = {name_of(service): at(service, "spec", "selector", HASH) for service in pair}
    overlap = len(hashes) == 2 and (len(set(hashes.values())) < 2 or None in hashes.values())
    if overlap and _canary_serves(rollout, snapshot.replica_sets):
        yield (
            f"Services {' and '.join(hashes)} select the same pods while two versions run",
            *(f"Service {name}: {HASH}: {value or 'not set'}" for name, value in hashes.items()),
        )


def _canary_serves(rollout: Json, replica_sets: list[Json]) -> bool:
    """Whether a version on trial has pods: until then the controller leaves its Service where it was.

    As `ensureSVCTargets` of Argo Rollouts, which waits for a replica set to be available.
    """
    ro = Rollout(rollout)
    if not ro.stable_hash or not ro.in_progress or waiting_for_controller(rollout):
        return False
    return any(
        at(one, "status", "availableReplicas") for one in replica_sets if labels_of(one).get(HASH) == ro.pod_hash
    )


@error(
    "route-missing",
    cause="the Rollout sets weights on a route that is not there, or that has no rule with both of its Services: the "
    "controller fails each time it reconciles, and no status says so",
    remediation="deliver again, or write the route as `tidegate rollout render` prints it",
)
def _route_missing(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    routes, route = snapshot.target.routes, snapshot.route
    kind, rules = routes.resource, routes.shares(route)
    if rollout and not route and not snapshot.unread(kind):
        what = f"there is no {kind.kind} {snapshot.target.delivery} in namespace {snapshot.namespace}"
        yield what, f"named in trafficRouting of {said(rollout)}"
    elif rollout and route and not any({routes.stable, routes.canary} <= set(rule) for rule in rules):
        named = ", ".join(sorted({name for rule in rules for name in rule}))
        yield (
            f"{said(route)} has no rule with both {routes.stable} and {routes.canary}",
            f"its backends: {named or 'none'}",
        )


@error(
    "route-not-accepted",
    cause="no Gateway serves the route as it is written: a wrong parent, a listener that does not allow it, or a "
    "backend that cannot be resolved",
    remediation="read the condition; correct parentRefs, the listener's allowedRoutes, or the backend",
)
def _route_not_accepted(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    route = snapshot.route
    for parent in at(route, "status", "parents", default=[]):
        for found in at(parent, "conditions", default=[]):
            if found.get("type") in {"Accepted", "ResolvedRefs"} and found.get("status") == "False":
                what = f"{said(route)} is not served by Gateway {at(parent, 'parentRef', 'name')} as it is written"
                yield what, f"{found['type']} is False: {found.get('reason', '')}: {found.get('message', '')}"


@error(
    "weight-differs",
    cause="the controller believes that its weight is set (the Gateway API plugin verifies nothing), "
    "and the route says another",
    remediation="find who else writes the route (kubectl get -o yaml --show-managed-fields), and stop it",
)
def _weight_differs(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    wanted = at(rollout, "status", "canary", "weights", "canary", "weight")
    routes, route = snapshot.target.routes, snapshot.route
    if wanted is None or waiting_for_controller(rollout):
        return
    for index, rule in enumerate(routes.shares(route)):
        total = sum(rule.values())
        share = 100 * rule[routes.canary] / total if total and {routes.stable, routes.canary} <= set(rule) else wanted
        # A weight is a whole percentage; anything nearer than one is rounding.
        if abs(share - wanted) >= 1:
            yield (
                f"{said(route)} gives the canary {share:.0f} % of requests, not {wanted} %",
                f"status.canary.weights.canary.weight: {wanted}",
                f"rule {index}: {', '.join(f'{name} {weight}' for name, weight in rule.items())}",
            )


@error(
    "pods-refused",
    cause="the API server does not allow the pods: the quota has no room for a second version next to the first, "
    "or a policy, a service account or a priority class refuses them; only the replica set's events say so",
    remediation="raise the quota or lower the replicas, apply the set-up part of `tidegate rollout render`, or "
    "correct what the message names",
)
def _pods_refused(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for replica_set in snapshot.replica_sets:
        failed = condition(replica_set, "ReplicaFailure") or {}
        if failed.get("status") == "True":
            yield f"{said(replica_set)} cannot make its pods", str(failed.get("message") or failed.get("reason"))


NODE_COMES_WITHIN = timedelta(minutes=10)
"""A node that Karpenter or an autoscaler buys is there in a few minutes, with its GPU's driver."""


@error(
    "pods-unschedulable",
    cause="the scheduler finds no node for pods of this Rollout: GPUs that are taken, labels that no node has, or "
    "a taint that the pods do not tolerate",
    remediation="free or add nodes of the kind that the scheduler's message names, or correct the pod template",
)
def _pods_unschedulable(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    newest, waiting = Rollout(rollout).pod_hash, []
    for pod in snapshot.pods:
        found = condition(pod, "PodScheduled") or {}
        since = time_at(found, "lastTransitionTime")
        late = since is None or snapshot.now - since > NODE_COMES_WITHIN
        if late and found.get("reason") == "Unschedulable" and labels_of(pod).get(HASH) == newest:
            waiting.append(pod)
    if waiting:
        message = at(condition(waiting[0], "PodScheduled"), "message", default="no message")
        yield f"{len(waiting)} pods of {said(rollout)} wait for a node", f"{said(waiting[0])}: {message}"


def _waiting(snapshot: Snapshot, reasons: frozenset[str]) -> Iterator[tuple[Json, Json]]:
    """A pod and the state of its container for each image that waits for one of these reasons."""
    seen = set()
    for pod, state in ((each, state) for each in snapshot.pods for state in container_states(each)):
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
    # It says that it is ready only when it has all its rights.
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
