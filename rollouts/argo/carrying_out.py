"""Sends what was decided, and makes sure of it.

A conflict is decided anew, an answer that was lost is looked up, and what the controller made of it is read back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from rollouts.argo.health import likely_cause
from rollouts.argo.model import Rollout
from rollouts.argo.patches import Requests
from rollouts.argo.phase import waiting_for_controller
from rollouts.argo.safe import renewed
from rollouts.argo.sources import workload_of
from rollouts.errors import ApiError, Conflict, Invalid, NotConfirmed, NotPossible, Unreachable
from rollouts.kube.model import Json, Request
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.clock import Clock
from tidegate.core.model import Value


class Outcome(Value):
    """What an action did."""

    sent: tuple[Request, ...]
    """What was sent and answered with yes; none when all was as wished."""
    rollout: Json
    """As it was read back, after the controller reacted."""


@dataclass(frozen=True)
class Errand:
    """One wish for one Rollout."""

    before: Json
    """The Rollout as it was found."""
    wanted: Callable[[Json], Awaitable[Requests]]
    """What is to be sent when it looks like this; none when all is as wished. May refuse with `NotPossible`."""
    done: Callable[[Json, Json], bool]
    """Whether the wish holds, by the Rollout before and now: one of `rollouts.argo.settled`."""
    within_seconds: float

    @property
    def name(self) -> str:
        return Rollout(self.before).name


async def carry_out(errand: Errand, cluster: Cluster, clock: Clock) -> Outcome:
    """Send it, and return once it had its effect.

    Raises:
        NotPossible: when it is refused, or overtaken by what somebody else did.
        NotConfirmed: when the effect does not show in time.
        ApiError, Unreachable: when it could not be sent, or nobody knows whether it was.
    """
    deadline = clock.monotonic() + errand.within_seconds
    sent = await _send(errand, cluster, clock, deadline)
    rollout = errand.before
    for pause in _pauses():
        rollout = await cluster.get(ROLLOUTS, errand.name)
        if errand.done(errand.before, rollout) and await _workload_seen(cluster, rollout):
            break
        if clock.monotonic() + pause > deadline:
            waited = f"nothing came of it in {errand.within_seconds:.0f} s"
            said = f"{errand.name}: sent, and {waited}" if sent else f"{errand.name}: said before, and {waited}"
            raise NotConfirmed(said, hint=likely_cause(Rollout(rollout)))
        await clock.sleep(pause)
    return Outcome(sent=sent, rollout=rollout)


async def _send(errand: Errand, cluster: Cluster, clock: Clock, deadline: float) -> Requests:
    rollout, lost = errand.before, False
    for pause in _pauses():
        try:
            sent = await _in_turn(cluster, await errand.wanted(rollout))
        except NotPossible:
            # What was sent without an answer may have been done: then it is rightly not where it was expected.
            if lost and errand.done(errand.before, rollout):
                break
            raise
        except (Unreachable, ApiError) as error:
            lost = lost or _may_be_done(error)
            again = isinstance(error, Conflict) or _may_be_done(error)
            if not again or clock.monotonic() + pause > deadline:
                raise
        else:
            return sent
        await clock.sleep(pause)
        rollout = await cluster.get(ROLLOUTS, errand.name)
    return ()


async def _in_turn(cluster: Cluster, requests: Requests) -> Requests:
    """One after the other; each holds for the object as the one before left it."""
    sent: list[Request] = []
    left = ""
    for request in requests:
        sent += renewed((request,), left) if left else (request,)
        answer = await cluster.send(sent[-1])
        left = Rollout(answer).resource_version
    return tuple(sent)


async def _workload_seen(cluster: Cluster, rollout: Json) -> bool:
    workload = await workload_of(cluster, rollout)
    return workload is None or not waiting_for_controller(rollout, workload=workload)


def _may_be_done(error: ApiError | Unreachable) -> bool:
    """Whether the write may have come about although no answer said so."""
    return isinstance(error, Unreachable) or (error.status >= 500 and not isinstance(error, Invalid))


def _pauses() -> Iterator[float]:
    pause = 0.1
    while True:
        yield pause
        pause = min(pause * 1.5, 2.0)
