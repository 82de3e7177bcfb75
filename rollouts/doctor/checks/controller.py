"""Whether the Argo Rollouts controller lives, and looks at this Rollout."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.argo.health import STUCK_AFTER_SECONDS, Lag, lag_of, likely_cause
from rollouts.argo.model import Rollout
from rollouts.argo.owed import UNSCALED, debt_of
from rollouts.doctor.checking import of_rollout
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import at, container_states, containers_of, is_ready, name_of, said, time_at
from rollouts.doctor.strategy import ago
from rollouts.kube.model import Json
from rollouts.kube.resources import ROLLOUTS

CONTROLLER_ABSENT = Ailment(
    code="controller-absent",
    severity=Severity.ERROR,
    cause="no pod of the controller is ready, so nobody acts on Rollouts; their status stays what it was",
    cure="install the controller, or find out from its Deployment why it has no pods; "
    "--controller-namespace says where it is",
)
CONTROLLER_ELSEWHERE = Ailment(
    code="controller-elsewhere",
    severity=Severity.NOTE,
    cause="no pod of the controller is in this namespace, and it has left its signs: it runs in another one or "
    "outside the cluster, or it was removed after it had seen all there is",
    cure="nothing where it runs outside the cluster; else --controller-namespace says where it is, so that its "
    "pods, configuration, metrics and log are looked at too",
)
CONTROLLER_CRASHES = Ailment(
    code="controller-crashes",
    severity=Severity.ERROR,
    cause="the controller ends soon after each start: most often a traffic plugin that cannot be downloaded, "
    "or a wrong argo-rollouts-config",
    cure="mend what its last words name, and restart it; Rollouts look healthy or Progressing meanwhile, and are not",
)
NO_LEADER = Ailment(
    code="controller-without-leader",
    severity=Severity.ERROR,
    cause="no replica of the controller holds the lease, so none of them reconciles",
    cure="look at the controller's access to leases, and at its clock; restart it",
)
NOT_RECONCILED = Ailment(
    code="rollout-not-reconciled",
    severity=Severity.ERROR,
    cause="the controller fails before it writes the status, most often at a traffic plugin that does not load; "
    "the phase says Progressing for as long as that lasts",
    cure="read the controller's log for this Rollout, mend what it names, and restart the controller",
)
RECONCILE_ERRORS = Ailment(
    code="reconcile-errors",
    severity=Severity.ERROR,
    cause="most looks of the controller at this Rollout end in an error, which its status does not show",
    cure="read the controller's log for this Rollout",
)
AILMENTS = (
    CONTROLLER_ABSENT,
    CONTROLLER_ELSEWHERE,
    CONTROLLER_CRASHES,
    NO_LEADER,
    NOT_RECONCILED,
    RECONCILE_ERRORS,
)

LAG = timedelta(seconds=STUCK_AFTER_SECONDS)
"""A controller that is well sees a change within a second or two."""

MANY_RESTARTS = 5
"""With a restart within `RECENT`: more than an eviction or an upgrade explains."""
RECENT = timedelta(hours=1)

LEASE_SECONDS = 15
"""The controller's own default, for a lease that does not say."""
MISSED_LEASES = 4
"""A lease that was not renewed for so many times its length has nobody."""

FEW_LOOKS = 3
"""Fewer tell nothing: the first looks at a new Rollout may meet its Services not yet being there."""


def alive(snapshot: Snapshot) -> Iterator[Finding]:
    """A pod that is ready, and none that crashes; the signs of its work where it is no pod of this namespace."""
    controller = snapshot.controller
    if not controller.readable:
        return
    crashing = [pod for pod in controller.pods if _crashes(snapshot, pod)]
    for pod in crashing:
        yield CONTROLLER_CRASHES.found(f"the controller's pod {name_of(pod)} crashes", *_last_words(pod))
    if crashing or any(is_ready(pod) for pod in controller.pods):
        return
    signs = () if controller.here else tuple(_signs(snapshot))
    if signs:
        yield CONTROLLER_ELSEWHERE.found(
            f"the controller is not in namespace {controller.namespace}, and works", *signs
        )
        return
    seen = [f"{said(deployment)}: {_available(deployment)} ready" for deployment in controller.deployments]
    what = f"no Argo Rollouts controller runs in namespace {controller.namespace}"
    yield CONTROLLER_ABSENT.found(what, *(seen or ["no pod labelled app.kubernetes.io/name=argo-rollouts"]))


def _signs(snapshot: Snapshot) -> Iterator[str]:
    """What only a controller can have written: a lease that is renewed, a status that follows its Rollout."""
    lease = snapshot.controller.lease
    renewed = time_at(lease, "spec", "renewTime") if lease else None
    if lease and renewed and snapshot.now - renewed <= _gone_after(lease):
        holder = at(lease, "spec", "holderIdentity", default="nobody")
        yield f"{said(lease)}: held by {holder}, renewed {ago(renewed, snapshot.now)} ago"
    # Another's Rollout at rest says nothing of a controller that leaves ours alone.
    for rollout in (snapshot.rollout,) if snapshot.rollout else snapshot.all(ROLLOUTS):
        if _followed(snapshot, rollout):
            observed = at(rollout, "status", "observedGeneration")
            yield f"{said(rollout)}: generation {rollout['metadata']['generation']}, observed {observed}"


def _followed(snapshot: Snapshot, rollout: Json) -> bool:
    """Whether its status has taken up the last wish, was written after it, or may still be."""
    owed = _owed(snapshot, rollout)
    conditions = at(rollout, "status", "conditions", default=[])
    written = [time for one in conditions if (time := time_at(one, "lastUpdateTime"))]
    if owed is None:
        return bool(at(rollout, "status", "observedGeneration"))
    return bool(written) and (snapshot.now - owed.since <= LAG or max(written) > owed.since)


def led(snapshot: Snapshot) -> Iterator[Finding]:
    """A lease that somebody renews. A controller without leader election has none."""
    lease = snapshot.controller.lease
    renewed = time_at(lease, "spec", "renewTime") if lease else None
    if _alone(snapshot) or not (lease and renewed and any(is_ready(pod) for pod in snapshot.controller.pods)):
        return
    if snapshot.now - renewed > _gone_after(lease):
        holder = at(lease, "spec", "holderIdentity", default="nobody")
        yield NO_LEADER.found(
            "no replica of the controller leads",
            f"{said(lease)}: held by {holder}, renewed {ago(renewed, snapshot.now)} ago, lasts {_length(lease)} s",
        )


def _gone_after(lease: Json) -> timedelta:
    return MISSED_LEASES * timedelta(seconds=_length(lease))


def _length(lease: Json) -> int:
    return int(at(lease, "spec", "leaseDurationSeconds", default=LEASE_SECONDS))


def _alone(snapshot: Snapshot) -> bool:
    """Whether it was told to do without leader election; a lease may be left over from before."""
    containers = [one for pod in snapshot.controller.pods for one in containers_of(pod)]
    return any("--leader-elect=false" in at(one, "args", default=[]) for one in containers)


@of_rollout
def reconciled(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """The status belongs to the spec; no condition ever says that it does not."""
    seen = snapshot.controller
    owed = _owed(snapshot, rollout)
    if owed and snapshot.now - owed.since > LAG:
        observed = at(rollout, "status", "observedGeneration", default="none")
        yield NOT_RECONCILED.found(
            f"{said(rollout)}: the controller has not reacted for {ago(owed.since, snapshot.now)}",
            f"generation {rollout['metadata']['generation']}, observed {observed}",
            likely_cause(Rollout(rollout)),
            *seen.words,
        )
    elif seen.errors and seen.reconciles and seen.errors >= max(FEW_LOOKS, seen.reconciles / 2):
        yield RECONCILE_ERRORS.found(f"{said(rollout)}: the controller fails at it", *seen.words)


def _owed(snapshot: Snapshot, rollout: Json) -> Lag | None:
    """Since when the controller has not reacted.

    A new version that is observed and never scaled is `progress`'s to tell.
    """
    debt = debt_of(rollout)
    return lag_of(rollout, now=snapshot.now) if debt and debt.text != UNSCALED else None


def _crashes(snapshot: Snapshot, pod: Json) -> bool:
    for state in container_states(pod):
        if at(state, "state", "waiting", "reason") == "CrashLoopBackOff":
            return True
        ended = time_at(state, "lastState", "terminated", "finishedAt")
        recent = ended is not None and snapshot.now - ended < RECENT
        if recent and int(at(state, "restartCount", default=0)) >= MANY_RESTARTS:
            return True
    return False


def _last_words(pod: Json) -> Iterator[str]:
    for state in container_states(pod):
        ended = at(state, "lastState", "terminated", default={})
        yield (
            f"container {state.get('name')}: {at(state, 'restartCount', default=0)} restarts, "
            f"last end: {at(ended, 'reason', default='unknown')}, exit code {at(ended, 'exitCode', default='unknown')}"
        )
        if at(ended, "message"):
            yield str(ended["message"]).strip().splitlines()[-1]


def _available(deployment: Json) -> int:
    return int(at(deployment, "status", "availableReplicas", default=0))


CHECKS = (alive, led, reconciled)
