"""Checks of the Rollout, its Services and its route: whether it serves, gets on, and leads to the right pods.

The Rollout is one that tidegate rendered: its Services and its route have the names of `rollouts.manifests`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from rollouts.argo.model import Rollout
from rollouts.argo.state import ABORTED, INVALID_SPEC, UNDECIDED, waiting_for_controller
from rollouts.cluster.snapshot import foreign_version
from rollouts.doctor.controller import step_of
from rollouts.doctor.model import Observation, Snapshot, error, note, warning
from rollouts.kube.objects import Labels, at, condition, labels_of, name_of, said, selects, time_at
from rollouts.kube.resources import HTTP_ROUTES, PODS, SERVICES
from rollouts.manifests.conventions import canary_service, stable_service
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
    remediation="`tidegate rollout render --as argo-ignore` prints what keeps Argo CD from it, "
    "`--as flux-ignore` Flux; for others, take the Rollout out of what they apply, and deliver again",
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
    named = [snapshot.named(SERVICES, name) for name in _services(snapshot)] if rollout else []
    pair = [service for service in named if service]
    for service in pair:
        selector: Labels = at(service, "spec", "selector", default={})
        # No other workload's pods have the controller's part of the selector, and no template has it.
        own_part = {key: value for key, value in selector.items() if key != HASH}
        also = sorted(name_of(pod) for pod in others if selects(selector, labels_of(pod)))
        if not selects(own_part, labels):
            told = (f"selector: {_written(own_part)}", f"labels of the pod template: {_written(labels)}")
            yield f"{said(service)} selects no pod of {said(rollout)}", *told
        elif also:
            told = (f"selector: {_written(selector)}", f"also selected: {', '.join(also[:3])}")
            yield f"{said(service)} selects pods that are not of {said(rollout)}", *told
    hashes = {name_of(service): at(service, "spec", "selector", HASH) for service in pair}
    overlap = len(hashes) == 2 and (len(set(hashes.values())) < 2 or None in hashes.values())
    if overlap and _canary_serves(rollout, snapshot.replica_sets):
        yield (
            f"Services {' and '.join(hashes)} select the same pods while two versions run",
            *(f"Service {name}: {HASH}: {value or 'not set'}" for name, value in hashes.items()),
        )


def _services(snapshot: Snapshot) -> tuple[str, str]:
    return stable_service(snapshot.target.delivery), canary_service(snapshot.target.delivery)


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


def _written(labels: Labels) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"


@error(
    "route-missing",
    cause="the Rollout sets weights on a route that is not there: the controller fails each time it reconciles, "
    "and no status says so",
    remediation="deliver again, or create the route as `tidegate rollout render` prints it",
)
def _route_missing(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    target = snapshot.target
    if rollout and not snapshot.unread(target.route) and not _route(snapshot):
        what = f"there is no {target.route.kind} {target.delivery} in namespace {snapshot.namespace}"
        yield what, f"named in trafficRouting of {said(rollout)}"


def _route(snapshot: Snapshot) -> Json:
    return snapshot.named(snapshot.target.route, snapshot.target.delivery) or {}


def _weights(route: Json) -> list[Mapping[str, int]]:
    """The weight of each backend in each rule of the route."""
    if route.get("kind") == HTTP_ROUTES.kind:
        rules = at(route, "spec", "rules", default=[])
        return [{ref["name"]: ref.get("weight", 1) for ref in rule.get("backendRefs") or []} for rule in rules]
    return [
        # Istio's hosts may be written with their domain; a single one needs no weight.
        {
            str(at(one, "destination", "host")).split(".")[0]: int(one.get("weight", 100 if len(targets) == 1 else 0))
            for one in targets
        }
        for rule in at(route, "spec", "http", default=[])
        for targets in [rule.get("route") or []]
    ]


@error(
    "route-without-service",
    cause="weights are set on backends by the name of their Service; a route without both has nothing to set",
    remediation="name both the stable and the canary Service in one rule of the route",
)
def _route_without_service(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    both, route = _services(snapshot), _route(snapshot)
    rules = _weights(route)
    if rollout and route and not any({*both} <= set(rule) for rule in rules):
        named = ", ".join(sorted({name for rule in rules for name in rule}))
        yield f"{said(route)} has no rule with both {' and '.join(both)}", f"its backends: {named or 'none'}"


@warning(
    "route-past-rollout",
    cause="a rule of the route names only the stable Service: what it matches follows no weight",
    remediation="name both Services in the rule, or delete the rule",
)
def _route_past_rollout(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    (stable, canary), route = _services(snapshot), _route(snapshot)
    rules = _weights(route)
    alone = [f"rule {index} names {stable} alone" for index, rule in enumerate(rules) if set(rule) == {stable}]
    if alone and any({stable, canary} <= set(rule) for rule in rules):
        yield f"{said(route)} sends some requests to the stable version whatever the weight is", *alone


@error(
    "route-not-accepted",
    cause="no Gateway serves the route as it is written: a wrong parent, a listener that does not allow it, or a "
    "backend that cannot be resolved",
    remediation="read the condition; correct parentRefs, the listener's allowedRoutes, or the backend",
)
def _route_not_accepted(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    route = _route(snapshot)
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
    (stable, canary), route = _services(snapshot), _route(snapshot)
    if wanted is None or waiting_for_controller(rollout):
        return
    for index, rule in enumerate(_weights(route)):
        total = sum(rule.values())
        share = 100 * rule[canary] / total if total and {stable, canary} <= set(rule) else wanted
        # A weight is a whole percentage; anything nearer than one is rounding.
        if abs(share - wanted) >= 1:
            yield (
                f"{said(route)} gives the canary {share:.0f} % of requests, not {wanted} %",
                f"status.canary.weights.canary.weight: {wanted}",
                f"rule {index}: {', '.join(f'{name} {weight}' for name, weight in rule.items())}",
            )


CHECKS = (
    _nothing_deployed,
    _nothing_serves,
    _rollout_invalid,
    _rollout_aborted,
    _paused,
    _abort_cannot_finish,
    _reverted_by,
    _service_wrong_pods,
    _route_missing,
    _route_without_service,
    _route_past_rollout,
    _route_not_accepted,
    _weight_differs,
)
