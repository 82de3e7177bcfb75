"""Checks of the Rollout: whether it makes progress, and whether its steps do what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

from rollouts.argo.model import Rollout
from rollouts.cluster.snapshot import foreign_version
from rollouts.doctor.model import Check, Finding, Severity, Snapshot, of_rollout
from rollouts.doctor.strategy import ago, canary, gateway_plugins, lags, replicas, routers, routing, services, steps
from rollouts.kube.objects import at, condition, said, time_at
from rollouts.manifests.schema import problems_in
from tidegate.core.model import Json

NOTHING_DEPLOYED = Check(
    code="nothing-deployed",
    severity=Severity.NOTE,
    cause="no delivery has been here yet",
    remediation="`tidegate deliver` applies everything that the region needs",
)
INVALID_SPEC = Check(
    code="rollout-invalid",
    severity=Severity.ERROR,
    cause="the controller refuses the Rollout and leaves everything as it is",
    remediation="correct what the message names",
)
ABORTED = Check(
    code="rollout-aborted",
    severity=Severity.ERROR,
    cause="a rollout was aborted and not taken back: the template still names the version that was refused, "
    "and the phase stays Degraded",
    remediation="`kubectl argo rollouts undo` to the stable's revision brings the template back; "
    "`kubectl argo rollouts retry rollout` tries the same version again",
)
DEADLINE = Check(
    code="progress-deadline-exceeded",
    severity=Severity.ERROR,
    cause="the new pods did not become available within progressDeadlineSeconds",
    remediation="find out why pods do not become ready; then `kubectl argo rollouts retry rollout` or `undo`",
)
INCONCLUSIVE = Check(
    code="paused-inconclusive",
    severity=Severity.WARNING,
    cause="an analysis had too little evidence; the Rollout waits for a person",
    remediation="`kubectl argo rollouts promote` or `abort`, after a look at the analysis run",
)
FORGOTTEN = Check(
    code="paused-for-long",
    severity=Severity.WARNING,
    cause="a rollout was started and left at a pause: two versions run, and nobody decides",
    remediation="`kubectl argo rollouts promote` or `abort`",
)
NO_PROGRESS = Check(
    code="no-progress",
    severity=Severity.ERROR,
    cause="a rollout says Progressing past its own deadline, and nobody wrote that it passed: the controller fails at "
    "every look, most often at a traffic plugin; that is how a pipeline that never ran looks",
    remediation="read the controller's log for this Rollout, mend what it names, and restart the controller",
)
NOTHING_SERVES = Check(
    code="nothing-serves",
    severity=Severity.ERROR,
    cause="no pod of the Rollout is available: users get errors",
    remediation="look at the pods; `kubectl argo rollouts undo` to the last revision that was brings it back",
)
NEVER_RUN = Check(
    code="pipeline-idle",
    severity=Severity.WARNING,
    cause="no delivery has run for so long that it is unknown whether one still would",
    remediation="deliver the champion again as a rehearsal, or take the pipeline away",
)

LONG_PAUSE = timedelta(days=1)
DEFAULT_DEADLINE = 600
"""progressDeadlineSeconds of a Rollout that does not say."""
SLACK = timedelta(minutes=2)
"""Between a deadline and the controller's word that it has passed."""
_AWAITING_NOTHING = {"NewReplicaSetAvailable", "RolloutPaused", "RolloutAborted", "ProgressDeadlineExceeded"}
IDLE = timedelta(days=30)


def deployed(snapshot: Snapshot) -> Iterator[Finding]:
    """There is a Rollout, and it serves."""
    rollout = snapshot.rollout
    if rollout is None:
        yield NOTHING_DEPLOYED.found(f"there is no Rollout {snapshot.delivery} in namespace {snapshot.namespace}")
    elif replicas(rollout) and not at(rollout, "status", "availableReplicas") and at(rollout, "status", "stableRS"):
        yield NOTHING_SERVES.found(f"{said(rollout)} has no available pod", f"spec.replicas: {replicas(rollout)}")


@of_rollout
def degraded(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """None of the conditions by which the controller calls a Rollout Degraded (`CalculateRolloutPhase`)."""
    invalid = condition(rollout, "InvalidSpec")
    if invalid:
        yield INVALID_SPEC.found(f"{said(rollout)} is not valid", str(invalid.get("message", "")))
        return
    progressing = condition(rollout, "Progressing") or {}
    message = str(progressing.get("message", ""))
    if at(rollout, "status", "abort") or progressing.get("reason") == "RolloutAborted":
        yield ABORTED.found(f"{said(rollout)} is aborted", message or "status.abort: true")
    elif progressing.get("reason") == "ProgressDeadlineExceeded":
        yield DEADLINE.found(f"{said(rollout)} did not get on in time", message)


@of_rollout
def moving(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """A rollout that is under way gets on, or waits for somebody who knows."""
    if at(rollout, "status", "abort") or lags(rollout):
        return
    pauses = at(rollout, "status", "pauseConditions", default=[])
    for pause in pauses:
        since = time_at(pause, "startTime")
        if str(pause.get("reason", "")).startswith("Inconclusive"):
            yield INCONCLUSIVE.found(f"{said(rollout)} is paused: {pause['reason']}")
        elif since and snapshot.now - since > LONG_PAUSE:
            what = f"{said(rollout)} is paused at {_step(rollout)}"
            yield FORGOTTEN.found(what, f"{pause.get('reason')} for {ago(since, snapshot.now)}")
    if not pauses and not at(rollout, "spec", "paused") and Rollout(rollout).in_progress:
        yield from _stands(snapshot, rollout)


def idle(snapshot: Snapshot) -> Iterator[Finding]:
    """Deliveries happen. One that never did is no finding: there is a first time."""
    last = snapshot.last_delivery
    if last and snapshot.now - last > IDLE:
        yield NEVER_RUN.found(
            f"{snapshot.delivery} has not been delivered for {ago(last, snapshot.now)}", f"last: {last:%Y-%m-%d}"
        )


def _stands(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Past its own deadline, which a controller that gets as far as writing the status would have written.

    As `RolloutTimedOut`: an analysis and an experiment may last for days, and what is paused or done waits for nobody.
    """
    progressing = condition(rollout, "Progressing") or {}
    since = time_at(progressing, "lastUpdateTime")
    if (
        since is None
        or progressing.get("reason") in _AWAITING_NOTHING
        or {"analysis", "experiment"} & set(_now(rollout))
    ):
        return
    deadline = timedelta(seconds=int(at(rollout, "spec", "progressDeadlineSeconds", default=DEFAULT_DEADLINE)))
    if snapshot.now - since > deadline + SLACK:
        yield NO_PROGRESS.found(
            f"{said(rollout)} has said Progressing at {_step(rollout)} for {ago(since, snapshot.now)}",
            f"{progressing.get('reason')}: {progressing.get('message', '')}",
            f"progressDeadlineSeconds: {deadline.total_seconds():.0f}",
            *snapshot.controller.words,
        )


def _now(rollout: Json) -> Json:
    return Rollout(rollout).step or {}


def _step(rollout: Json) -> str:
    index = at(rollout, "status", "currentStepIndex", default=0)
    return f"step {index}/{len(steps(rollout))}"


REVERTED = Check(
    code="reverted-by",
    severity=Severity.WARNING,
    cause="somebody else than tidegate wrote the version that the Rollout asks for, such as a GitOps tool that applies "
    "what is in Git: the next delivery is ended the same way",
    remediation="`tidegate rollout ignore-differences` prints what keeps Argo CD or Flux from it; for others, take the "
    "Rollout out of what they apply, and deliver again",
)
WEIGHTS_BLIND = Check(
    code="weights-blind",
    severity=Severity.ERROR,
    cause="trafficRouting names no router: a field that Argo Rollouts does not have, such as gatewayAPI, is dropped "
    "by the API server without a word, and routes keep the weights they had",
    remediation="write it as trafficRouting.plugins.argoproj-labs/gatewayAPI, or as a field that exists, "
    "and apply with fieldValidation=Strict",
)
FIELD_DROPPED = Check(
    code="field-dropped",
    severity=Severity.ERROR,
    cause="what was applied has a field that the definition does not know; the API server dropped it without a word",
    remediation="correct the field, and apply with fieldValidation=Strict (`kubectl apply --validate=strict`)",
)
COARSE_WEIGHTS = Check(
    code="weights-by-pods",
    severity=Severity.WARNING,
    cause="without traffic routing a weight is a share of pods, and there are too few pods for it",
    remediation="route traffic through the Gateway API or Istio, or choose weights that pods can make",
)
MIRROR_REFUSED = Check(
    code="mirror-refused",
    severity=Severity.ERROR,
    cause="up to v1.9 the controller takes setMirrorRoute for Istio only, and marks the Rollout InvalidSpec",
    remediation="remove the step; `tidegate deliver` mirrors by a filter of its own on the HTTPRoute",
)
MIRROR_DOES_NOTHING = Check(
    code="mirror-does-nothing",
    severity=Severity.ERROR,
    cause="the Gateway API plugin answers setMirrorRoute with success and copies nothing (its issue 32)",
    remediation="remove the step; `tidegate deliver` mirrors by a filter of its own on the HTTPRoute",
)
MIRROR_WITHOUT_MATCH = Check(
    code="mirror-without-match",
    severity=Severity.ERROR,
    cause="on Istio, setMirrorRoute without match removes the mirror; it does not mirror everything",
    remediation="give the step a match for everything, such as method with regex .*",
)
ROUTE_NOT_MANAGED = Check(
    code="route-not-managed",
    severity=Severity.ERROR,
    cause="a header or mirror route must be listed in trafficRouting.managedRoutes; the Rollout is InvalidSpec without",
    remediation="list the route's name in managedRoutes",
)
HEADER_ROUTE_LOST = Check(
    code="header-route-lost",
    severity=Severity.WARNING,
    cause="a canary without available pods loses its header route, which is written again only while the step that "
    "sets it is the current one",
    remediation=(
        "scale the canary to a pod or more (setCanaryScale) before setHeaderRoute, and keep it there to the end"
    ),
)
DYNAMIC_STABLE = Check(
    code="stable-released-early",
    severity=Severity.WARNING,
    cause="dynamicStableScale takes pods from the stable as the weight rises: an abort sends everybody to too few, "
    "and an engine takes minutes to start",
    remediation=(
        "set dynamicStableScale: false; where GPUs do not suffice for both, go back as slowly as pods become ready"
    ),
)
ABORT_CANNOT_FINISH = Check(
    code="abort-cannot-finish",
    severity=Severity.ERROR,
    cause="since Argo Rollouts 1.9.0 an aborted canary with dynamicStableScale keeps users for as long as it keeps "
    "pods, and these fields keep them (argo-rollouts#4898, #4841); its status says RolloutAborted and no more",
    remediation="set dynamicStableScale: false, or leave out abortScaleDownDelaySeconds and minPodsPerReplicaSet; "
    "after an abort that hangs, bring the stable's template back: kubectl argo rollouts undo",
)
CANARY_WITHOUT_PODS = Check(
    code="canary-without-pods",
    severity=Severity.ERROR,
    cause="a step gives users to a canary that setCanaryScale left without pods",
    remediation="scale the canary before its first weight, or end with setCanaryScale: {matchTrafficWeight: true}",
)
NOT_WARM = Check(
    code="previous-not-kept-warm",
    severity=Severity.NOTE,
    cause="scaleDownDelaySeconds is short: soon after a promotion, going back means a cold start",
    remediation="set scaleDownDelaySeconds to the bake and more, with scaleDownDelayRevisionLimit and rollbackWindow",
)

FINE_POINTS = 10
"""Percentage points by which a share of pods may miss its weight."""
DEFAULT_DELAY = 30
"""scaleDownDelaySeconds of a Rollout that does not say."""
WARM_SECONDS = 300
"""Less than this is over before anybody has looked at a promoted version."""


@of_rollout
def reverted(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """What is asked for was asked for by tidegate, where it is tidegate's to ask."""
    if not snapshot.is_empty and (found := foreign_version(rollout, stable="")):
        yield REVERTED.found(f"{said(rollout)} was written by somebody else", found.reason)


@of_rollout
def weights(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Somebody sets the weights, and they can be made."""
    if dropped := _dropped(rollout):
        yield FIELD_DROPPED.found(f"{said(rollout)} has lost what was applied", *dropped)
        return
    if not any("setWeight" in step for step in steps(rollout)):
        return
    if routers(rollout):
        return
    if {"stableService", "canaryService"} <= set(services(rollout)):
        yield WEIGHTS_BLIND.found(
            f"{said(rollout)} has a Service for each version, and nobody who sets weights on routes to them",
            f"spec.strategy.canary.trafficRouting: {routing(rollout) or 'empty'}",
        )
    else:
        yield from _coarse(rollout)


@of_rollout
def mirrors(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """A step that mirrors does mirror."""
    told = [step["setMirrorRoute"] for step in steps(rollout) if "setMirrorRoute" in step]
    if told and gateway_plugins(rollout):
        version = snapshot.controller.version
        old = version is not None and version < (1, 10)
        check = MIRROR_REFUSED if old else MIRROR_DOES_NOTHING
        known = ".".join(map(str, version)) if version else "unknown"
        yield check.found(
            f"{said(rollout)} mirrors with setMirrorRoute through the Gateway API plugin",
            f"{len(told)} steps setMirrorRoute; the controller's version is {known}",
        )
    elif "istio" in routing(rollout):
        matched: set[str] = set()
        for one in told:
            if at(one, "match"):
                matched.add(one["name"])
            elif one["name"] not in matched or "percentage" in one:
                yield MIRROR_WITHOUT_MATCH.found(
                    f"{said(rollout)}: setMirrorRoute {one['name']} mirrors nothing", "it has no match"
                )


@of_rollout
def managed(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Routes that steps set are the controller's to set."""
    listed = {route.get("name") for route in at(routing(rollout), "managedRoutes", default=[])}
    for step in steps(rollout):
        for kind in ("setHeaderRoute", "setMirrorRoute"):
            name = at(step, kind, "name")
            if name and name not in listed:
                yield ROUTE_NOT_MANAGED.found(
                    f"{said(rollout)}: {kind} {name} is in no managedRoutes",
                    f"managedRoutes: {', '.join(sorted(map(str, listed))) or 'none'}",
                )


@of_rollout
def pods_behind(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """No step gives users to a canary without pods, nor lets it lose its header route for want of them."""
    if not routers(rollout):
        return
    scale: Json = {}
    weight, header = 0, ""
    for index, step in enumerate(steps(rollout)):
        scale, weight = step.get("setCanaryScale", scale), int(step.get("setWeight", weight))
        if "setHeaderRoute" in step:
            header = step["setHeaderRoute"]["name"] if at(step, "setHeaderRoute", "match") else ""
        if _has_pods(scale, weight) or not (weight or header):
            continue
        evidence = f"step {index}: {_written(step)}; canary scaled to {_written(scale) or 'its weight'}"
        if weight:
            yield CANARY_WITHOUT_PODS.found(
                f"{said(rollout)}: step {index} has {weight} % of users on a canary without pods", evidence
            )
        else:
            yield HEADER_ROUTE_LOST.found(
                f"{said(rollout)}: at step {index} no pod is behind the header route {header}", evidence
            )
        return


@of_rollout
def way_back(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Going back needs no cold start."""
    if not routers(rollout):
        return
    if at(canary(rollout), "dynamicStableScale"):
        yield DYNAMIC_STABLE.found(
            f"{said(rollout)} scales its stable down as the weight rises", "dynamicStableScale: true"
        )
        version = snapshot.controller.version
        if (version is None or version >= (1, 9)) and (keeps := _keeps_aborted_pods(canary(rollout))):
            yield ABORT_CANNOT_FINISH.found(
                f"an abort of {said(rollout)} leaves users on the version that failed",
                f"dynamicStableScale: true, {', '.join(keeps)}",
            )
    delay = int(at(canary(rollout), "scaleDownDelaySeconds", default=DEFAULT_DELAY))
    if delay < WARM_SECONDS:
        yield NOT_WARM.found(
            f"{said(rollout)} keeps its previous version for {delay} s", f"scaleDownDelaySeconds: {delay}"
        )


def _keeps_aborted_pods(strategy: Json) -> list[str]:
    """The fields by which an aborted canary stays larger than its weight asks for."""
    # 1 is no more than any weight needs; a delay of 0 is none that begins once the stable is whole.
    least = {"abortScaleDownDelaySeconds": 1, "minPodsPerReplicaSet": 2}
    told = {field: at(strategy, field) for field in least}
    return [f"{field}: {told[field]}" for field in least if told[field] is not None and told[field] >= least[field]]


def _dropped(rollout: Json) -> list[str]:
    """Fields that kubectl applied last, that the object does not have, and that no Rollout has."""
    text = at(rollout, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration", default="{}")
    try:
        applied = json.loads(text)
    except ValueError:
        return []
    if not isinstance(applied, dict) or "kind" not in applied:
        return []
    unknown = [problem for problem in problems_in(applied) if problem.unknown]
    return [f"applied and dropped: {one.path}" for one in unknown if at(rollout, *one.where) is None]


def _coarse(rollout: Json) -> Iterator[Finding]:
    wanted = replicas(rollout)
    for index, step in enumerate(steps(rollout)):
        weight = at(step, "setWeight", default=0)
        # One pod at least on each side, as the controller rounds.
        share = 100 * max(1, round(wanted * weight / 100)) / max(wanted, 1)
        if 0 < weight < 100 and abs(share - weight) > FINE_POINTS:
            yield COARSE_WEIGHTS.found(
                f"{said(rollout)}: step {index} wants {weight} % and gets {share:.0f} %", f"{wanted} replicas"
            )
            return


def _has_pods(scale: Json, weight: int) -> bool:
    """As the controller scales: by setCanaryScale until matchTrafficWeight, else by the weight."""
    if not scale or at(scale, "matchTrafficWeight"):
        return weight > 0
    return bool(at(scale, "replicas") or at(scale, "weight"))


def _written(step: Json) -> str:
    return ", ".join(f"{key}: {value}" for key, value in step.items())


CHECKS = (
    NOTHING_DEPLOYED,
    INVALID_SPEC,
    ABORTED,
    DEADLINE,
    INCONCLUSIVE,
    FORGOTTEN,
    NO_PROGRESS,
    NOTHING_SERVES,
    NEVER_RUN,
    REVERTED,
    WEIGHTS_BLIND,
    FIELD_DROPPED,
    COARSE_WEIGHTS,
    MIRROR_REFUSED,
    MIRROR_DOES_NOTHING,
    MIRROR_WITHOUT_MATCH,
    ROUTE_NOT_MANAGED,
    HEADER_ROUTE_LOST,
    DYNAMIC_STABLE,
    ABORT_CANNOT_FINISH,
    CANARY_WITHOUT_PODS,
    NOT_WARM,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    deployed,
    degraded,
    moving,
    idle,
    reverted,
    weights,
    mirrors,
    managed,
    pods_behind,
    way_back,
)
