"""Whether the Rollout gets anywhere, and whether deliveries happen at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.argo.model import Rollout
from rollouts.doctor.checking import of_rollout
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import at, condition, said, time_at
from rollouts.doctor.strategy import ago, lags, replicas, steps
from rollouts.kube.model import Json

NOTHING_DEPLOYED = Ailment(
    code="nothing-deployed",
    severity=Severity.NOTE,
    cause="no delivery has been here yet",
    cure="`tidegate deliver` applies everything that the region needs",
)
INVALID_SPEC = Ailment(
    code="rollout-invalid",
    severity=Severity.ERROR,
    cause="the controller refuses the Rollout and leaves everything as it is",
    cure="correct what the message names",
)
ABORTED = Ailment(
    code="rollout-aborted",
    severity=Severity.ERROR,
    cause="a rollout was aborted and not taken back: the template still names the version that was refused, "
    "and the phase stays Degraded",
    cure="`tidegate rollout undo` brings the template back; `retry` tries the same version again",
)
DEADLINE = Ailment(
    code="progress-deadline-exceeded",
    severity=Severity.ERROR,
    cause="the new pods did not become available within progressDeadlineSeconds",
    cure="find out why pods do not become ready; then `tidegate rollout retry` or `undo`",
)
INCONCLUSIVE = Ailment(
    code="paused-inconclusive",
    severity=Severity.WARNING,
    cause="an analysis had too little evidence; the Rollout waits for a person",
    cure="`tidegate rollout promote` or `abort`, after a look at the analysis run",
)
FORGOTTEN = Ailment(
    code="paused-for-long",
    severity=Severity.WARNING,
    cause="a rollout was started and left at a pause: two versions run, and nobody decides",
    cure="`tidegate rollout promote` or `abort`",
)
NO_PROGRESS = Ailment(
    code="no-progress",
    severity=Severity.ERROR,
    cause="a rollout says Progressing past its own deadline, and nobody wrote that it passed: the controller fails at "
    "every look, most often at a traffic plugin; that is how a pipeline that never ran looks",
    cure="read the controller's log for this Rollout, mend what it names, and restart the controller",
)
NOTHING_SERVES = Ailment(
    code="nothing-serves",
    severity=Severity.ERROR,
    cause="no pod of the Rollout is available: users get errors",
    cure="look at the pods; `tidegate rollout undo` brings back the last version that was",
)
NEVER_RUN = Ailment(
    code="pipeline-idle",
    severity=Severity.WARNING,
    cause="no delivery has run for so long that nobody knows whether one still would",
    cure="deliver the champion again as a rehearsal, or take the pipeline away",
)
AILMENTS = (
    NOTHING_DEPLOYED,
    INVALID_SPEC,
    ABORTED,
    DEADLINE,
    INCONCLUSIVE,
    FORGOTTEN,
    NO_PROGRESS,
    NOTHING_SERVES,
    NEVER_RUN,
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


CHECKS = (deployed, degraded, moving, idle)
