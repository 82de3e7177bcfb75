"""Checks of the Rollout: whether it serves, is accepted, gets on, and can be rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.argo.model import Rollout
from rollouts.argo.state import ABORTED, INVALID_SPEC, TIMED_OUT, UNDECIDED, waiting_for_controller
from rollouts.cluster.snapshot import foreign_version
from rollouts.doctor.controller import step_of
from rollouts.doctor.model import Observation, Snapshot, error, note, warning
from rollouts.doctor.strategy import canary, routers
from rollouts.kube.objects import condition, said, time_at
from tidegate.core.model import Json

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
    cause="the controller refuses the Rollout and leaves everything as it is",
    remediation="correct what the message names",
)
def _rollout_invalid(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    if found := condition(rollout, INVALID_SPEC):
        yield f"{said(rollout)} is not valid", str(found.get("message", ""))


def _progressing(rollout: Json) -> Json:
    """The condition that tells how far it is; empty where the spec is refused, which goes before it."""
    return {} if condition(rollout, INVALID_SPEC) else condition(rollout, "Progressing") or {}


@error(
    "rollout-aborted",
    cause="a rollout was aborted and its template not set back: it still names the version that was refused, and "
    "the phase stays Degraded",
    remediation="`kubectl argo rollouts undo` to the stable's revision sets the template back; "
    "`kubectl argo rollouts retry rollout` tries the same version again",
)
def _rollout_aborted(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    progressing = _progressing(rollout)
    if progressing and (Rollout(rollout).aborted or progressing.get("reason") == ABORTED):
        yield f"{said(rollout)} is aborted", str(progressing.get("message") or "status.abort: true")


@error(
    "progress-deadline-exceeded",
    cause="the new pods did not become available within progressDeadlineSeconds",
    remediation="find out why pods do not become ready; then `kubectl argo rollouts retry rollout` or `undo`",
)
def _progress_deadline_exceeded(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    progressing = _progressing(rollout)
    if progressing.get("reason") == TIMED_OUT and not Rollout(rollout).aborted:
        yield f"{said(rollout)} did not get on in time", str(progressing.get("message", ""))


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
def _abort_cannot_finish(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    version = snapshot.controller.version
    strategy = canary(rollout)
    if not strategy.get("dynamicStableScale") or not routers(rollout) or (version is not None and version < (1, 9)):
        return
    # 1 is no more than any weight needs; with a delay of 0 the canary shrinks once the stable is whole.
    least = {"abortScaleDownDelaySeconds": 1, "minPodsPerReplicaSet": 2}
    keeps = [f"{field}: {strategy[field]}" for field in least if (strategy.get(field) or 0) >= least[field]]
    if keeps:
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


CHECKS = (
    _nothing_deployed,
    _nothing_serves,
    _rollout_invalid,
    _rollout_aborted,
    _progress_deadline_exceeded,
    _paused,
    _abort_cannot_finish,
    _reverted_by,
)
