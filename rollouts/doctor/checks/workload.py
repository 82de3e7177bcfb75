"""Checks of what acts on a Rollout from outside: a borrowed Deployment, autoscalers, the region's guard."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, Severity, Snapshot, Unread, of_rollout
from rollouts.doctor.strategy import routers
from rollouts.kube.objects import at, condition, containers_of, is_ready, labels_of, name_of, said
from rollouts.kube.resources import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS, PODS, SCALED_OBJECTS
from rollouts.manifests.conventions import GUARD, guard
from tidegate.core.model import Json

WORKLOAD_DOUBLES = Check(
    code="workload-not-scaled-down",
    severity=Severity.ERROR,
    cause="workloadRef.scaleDown is never (the default): the Deployment keeps its pods besides those of the Rollout, "
    "with every GPU twice, and users on pods that no weight moves",
    remediation="set workloadRef.scaleDown: onsuccess (or progressively), or scale the Deployment to 0",
)
WORKLOAD_MISSING = Check(
    code="workload-missing",
    severity=Severity.ERROR,
    cause="the Rollout borrows the pod template of a Deployment that is not there; it is InvalidSpec",
    remediation="create the Deployment, or correct workloadRef",
)
SCALES_WORKLOAD = Check(
    code="autoscaler-on-workload",
    severity=Severity.ERROR,
    cause="the autoscaler scales the Deployment behind workloadRef: it brings up pods next to the Rollout's, "
    "and the Rollout itself is never scaled",
    remediation="let scaleTargetRef name the Rollout",
)
TWO_AUTOSCALERS = Check(
    code="two-autoscalers",
    severity=Severity.ERROR,
    cause="two autoscalers scale one Rollout: each undoes what the other did",
    remediation="keep one; a ScaledObject makes an autoscaler of its own",
)
COUNTS_BOTH = Check(
    code="autoscaler-counts-both",
    severity=Severity.WARNING,
    cause="utilisation is averaged over the pods of both versions and multiplied by their number: while a canary "
    "is up, the stable is scaled to twice its size (Argo Rollouts issue 3849)",
    remediation="scale on a total over a target for each pod (AverageValue), such as waiting requests",
)
SCALES_BLINDLY = Check(
    code="autoscaler-blind",
    severity=Severity.WARNING,
    cause="the autoscaler has no metric: it leaves the replicas as they are, whatever the load",
    remediation="bring the metric: metrics server, adapter, or KEDA's trigger; the condition says which",
)


@of_rollout
def workload(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """A Deployment whose template is borrowed has no pods of its own."""
    borrowed = at(rollout, "spec", "workloadRef", default={})
    if borrowed.get("kind") != "Deployment" or snapshot.unread(DEPLOYMENTS):
        return
    deployment = snapshot.named(DEPLOYMENTS, str(borrowed.get("name")))
    if deployment is None:
        yield WORKLOAD_MISSING.found(f"there is no Deployment {borrowed.get('name')}", f"{said(rollout)}: workloadRef")
        return
    pods = int(at(deployment, "spec", "replicas", default=1))
    scale_down = borrowed.get("scaleDown", "never")
    if pods and scale_down == "never":
        what = f"{said(deployment)} keeps {pods} pods besides those of {said(rollout)}"
        yield WORKLOAD_DOUBLES.found(what, f"workloadRef.scaleDown: {borrowed.get('scaleDown', 'never, by default')}")


@of_rollout
def autoscalers(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """One autoscaler, on the Rollout, with a metric that does not count both versions."""
    behind = at(rollout, "spec", "workloadRef", "name")
    on_rollout = [one for one in _scaling(snapshot) if _target(one) == ("Rollout", snapshot.delivery)]
    for one in _scaling(snapshot):
        if behind and _target(one) == ("Deployment", behind):
            yield SCALES_WORKLOAD.found(f"{said(one)} scales Deployment {behind}, not {said(rollout)}")
    if len(on_rollout) > 1:
        what = f"{said(rollout)} has {len(on_rollout)} autoscalers"
        yield TWO_AUTOSCALERS.found(what, *(said(one) for one in on_rollout))
    for one in on_rollout:
        yield from _counting(rollout, one)
    for one in snapshot.all(HORIZONTAL_POD_AUTOSCALERS):
        active = condition(one, "ScalingActive") or {}
        # Scaling that was switched off, by 0 replicas, is no blindness.
        blind = active.get("status") == "False" and active.get("reason") != "ScalingDisabled"
        if blind and _target(one) == ("Rollout", snapshot.delivery):
            yield SCALES_BLINDLY.found(
                f"{said(one)} cannot scale {said(rollout)}", f"{active.get('reason')}: {active.get('message')}"
            )


def _scaling(snapshot: Snapshot) -> list[Json]:
    """Every autoscaler, without those that KEDA makes of its ScaledObjects."""
    scaled = list(snapshot.all(SCALED_OBJECTS))
    made = {at(one, "status", "hpaName", default=f"keda-hpa-{name_of(one)}") for one in scaled}
    plain = [one for one in snapshot.all(HORIZONTAL_POD_AUTOSCALERS) if name_of(one) not in made]
    return [*scaled, *plain]


def _target(scaler: Json) -> tuple[str, str]:
    named = at(scaler, "spec", "scaleTargetRef", default={})
    return str(named.get("kind", "Deployment")), str(named.get("name", ""))


def _counting(rollout: Json, scaler: Json) -> Iterator[Finding]:
    if not routers(rollout):
        return
    told = [
        metric
        for metric in at(scaler, "spec", "metrics", default=[])
        if at(metric, str(metric.get("type", ""))[:1].lower() + str(metric.get("type", ""))[1:], "target", "type")
        == "Utilization"
    ]
    triggers = [
        trigger
        for trigger in at(scaler, "spec", "triggers", default=[])
        if trigger.get("type") in {"cpu", "memory"} and trigger.get("metricType", "Utilization") == "Utilization"
    ]
    if told or triggers:
        yield COUNTS_BOTH.found(
            f"{said(scaler)} counts the pods of both versions of {said(rollout)}",
            *(f"metric of type {metric['type']}: Utilization" for metric in told),
            *(f"trigger {trigger['type']}: Utilization" for trigger in triggers),
        )


NO_GUARD = Check(
    code="no-guard",
    severity=Severity.NOTE,
    cause="the spec asks for no guard, or names no image for one: a trial whose deliverer died, or does not reach the "
    "region any more, goes on until a person ends it",
    remediation="set fleet.guard.image (`tidegate workflow image` makes one) and apply the set-up part of "
    "`tidegate rollout render`",
)
ABSENT = Check(
    code="guard-absent",
    severity=Severity.WARNING,
    cause="the set-up was applied before the spec asked for a guard, or somebody took it away: a trial without a "
    "carrier does not end by itself",
    remediation="apply the set-up part of `tidegate rollout render`",
)
ANOTHER = Check(
    code="guard-image-differs",
    severity=Severity.WARNING,
    cause="the guard runs from another image than the spec says: the set-up was not applied since",
    remediation="apply the set-up part of `tidegate rollout render`",
)
DOWN = Check(
    code="guard-not-ready",
    severity=Severity.WARNING,
    cause="no pod of the guard is ready: it does not start, or lacks a right, and a trial without a carrier does not "
    "end by itself",
    remediation="read its log (kubectl logs deployment/NAME-guard), which names what is missing; apply the set-up part "
    "of `tidegate rollout render`",
)


@of_rollout
def guarded(snapshot: Snapshot, _: Json) -> Iterator[Finding]:
    """The guard is there, from the image that the spec says, and ready."""
    yield from watched_over(snapshot)


def watched_over(snapshot: Snapshot) -> Iterator[Finding]:
    """The same without a Rollout. A guard says that it is ready only when it has all its rights."""
    name = guard(snapshot.delivery)
    found = snapshot.named(DEPLOYMENTS, name)
    if not snapshot.guard:
        if found is None:
            yield NO_GUARD.found(f"no guard watches over trials of {snapshot.delivery}")
        return
    if found is None:
        if snapshot.unread(DEPLOYMENTS) is not Unread.FORBIDDEN:
            yield ABSENT.found(f"there is no Deployment {name}")
        return
    images = [str(one.get("image", "")) for one in containers_of(at(found, "spec", "template", default={}))]
    if snapshot.guard not in images:
        yield ANOTHER.found(
            f"{said(found)} runs from another image", f"found: {', '.join(images)}", f"expected: {snapshot.guard}"
        )
    pods = [pod for pod in snapshot.all(PODS) if labels_of(pod).get(GUARD) == snapshot.delivery]
    if not any(map(is_ready, pods)):
        yield DOWN.found(f"{said(found)} has no pod that is ready", *_why(found, pods))


def _why(found: Json, pods: list[Json]) -> Iterator[str]:
    for pod in pods:
        for state in at(pod, "status", "containerStatuses", default=[]):
            waiting = at(state, "state", "waiting", default={})
            reason = waiting.get("message") or waiting.get("reason") or "it runs, and says that it cannot guard"
            yield f"{said(pod)}: {reason}"
    available = condition(found, "Available")
    if not pods and available and available.get("message"):
        yield str(available["message"])


CHECKS = (
    WORKLOAD_DOUBLES,
    WORKLOAD_MISSING,
    SCALES_WORKLOAD,
    TWO_AUTOSCALERS,
    COUNTS_BOTH,
    SCALES_BLINDLY,
    NO_GUARD,
    ABSENT,
    ANOTHER,
    DOWN,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    workload,
    autoscalers,
    guarded,
)
