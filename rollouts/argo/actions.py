"""What a delivery does to a Rollout of one cluster: read, decide, send, and read back until the controller has done it.

A conflict is decided again, an answer that was lost is looked up, and the action is complete once the controller has
processed it. A patch of the status moves no generation, so that `observedGeneration` says nothing about it: what the
controller made of it has to show in the fields that it writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from rollouts.argo import compare_and_set
from rollouts.argo.compare_and_set import ANY_STATE, Precondition, Requests, with_resource_version
from rollouts.argo.model import Rollout
from rollouts.argo.state import is_abort_confirmed, is_pause_stale, likely_cause, waiting_for_controller
from rollouts.argo.waking import Waker
from rollouts.errors import ApiError, Conflict, Invalid, NotConfirmed, NotPossible, Unreachable
from rollouts.kube.client import KubeClient
from rollouts.kube.model import Request
from rollouts.kube.resources import ROLLOUTS
from rollouts.kube.retry import Attempts, Backoff, RetryPolicy, time_left
from tidegate.core.clock import Clock
from tidegate.core.model import Json, Value

REACT_SECONDS = 30.0
"""A controller that is well answers within a second or two; the queue of a large cluster takes longer."""

BACKOFF = Backoff(first_seconds=0.1, most_seconds=1.0)
"""Between looks at a controller's reaction, and after a conflict with its own writes."""

Decide = Callable[[Json, Precondition], Requests]
"""One of `rollouts.argo.compare_and_set`: the requests for a Rollout in this state, none when nothing has to change."""

Converged = Callable[[Json, Json], bool]
"""Whether an action had its effect, by the Rollout before and now: one of the predicates below."""


def _always(_: Json) -> None:
    """Nothing is refused."""


class RolloutClient:
    """The Rollouts of one cluster's namespace.

    Each action raises `NotPossible` when it is refused or overtaken, `NotConfirmed` when its effect does not show in
    time, and what `KubeClient` raises. `expected` is where the rollout is thought to be; by default, where it is
    found.
    """

    def __init__(
        self,
        cluster: KubeClient,
        clock: Clock,
        *,
        react_seconds: float = REACT_SECONDS,
        allows: Callable[[Json], None] = _always,
        waker: Waker | None = None,
    ) -> None:
        """`allows` checks each Rollout before it is written, and raises to refuse the write."""
        self._allows = allows
        self._waker = waker or Waker(cluster, clock, allows=allows)
        self._cluster = cluster
        self._clock = clock
        self._react_seconds = react_seconds
        self._retries = RetryPolicy(clock, seconds=react_seconds, backoff=BACKOFF)

    async def get(self, name: str) -> Json:
        return await self._cluster.get(ROLLOUTS, name)

    async def promote_full(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """Past all steps; returns once none holds it, which is before every pod is up."""
        return await self._carry_out(name, compare_and_set.promote_full, is_past_all_steps, expected, at=_version)

    async def to_step(self, name: str, index: int, expected: Precondition | None = None) -> ActionResult:
        """To the step with this index, up or down."""

        def decide(rollout: Json, expected: Precondition) -> Requests:
            return compare_and_set.to_step(rollout, index, expected)

        return await self._carry_out(name, decide, partial(is_at_step, index=index), expected)

    async def abort(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """All users back to the stable version, at whatever step the other one is by now."""
        return await self._carry_out(name, compare_and_set.abort, is_aborted, expected, at=_version)

    async def resume(self, name: str, expected: Precondition = ANY_STATE) -> ActionResult:
        """Let go what a person holds by `spec.paused`, and nothing else."""
        return await self._carry_out(name, compare_and_set.resume, is_resumed, expected)

    async def _carry_out(
        self,
        name: str,
        decide: Decide,
        converged: Converged,
        expected: Precondition | None,
        *,
        at: Callable[[Json], Precondition] = Precondition.of,
    ) -> ActionResult:
        """Decide and send until it is sent, then wait; `at` is what is expected of the Rollout that is found."""
        attempts = self._retries.attempts()
        rollout = before = await self.get(name)
        precondition, lost = expected or at(before), False
        while True:
            sent: list[Request] = []
            version = ""
            try:
                self._allows(rollout)
                for request in decide(rollout, precondition):
                    # Each after the first holds for the object as the one before left it.
                    sent += with_resource_version((request,), version) if sent else (request,)
                    version = Rollout(await self._cluster.send(sent[-1])).resource_version
                break
            except NotPossible:
                # What was sent without an answer may have been done: then it is rightly not where it was expected.
                if not (lost and converged(before, rollout)):
                    raise
                sent = []
                break
            except (Unreachable, ApiError) as error:
                lost = lost or _may_be_done(error)
                if not (isinstance(error, Conflict) or _may_be_done(error)) or not await attempts.pause():
                    raise
            rollout = await self.get(name)
        return ActionResult(sent=tuple(sent), rollout=await self._wait(before, converged, attempts, sent=bool(sent)))

    async def _wait(self, before: Json, converged: Converged, attempts: Attempts, *, sent: bool) -> Json:
        """The Rollout once the controller has processed what was sent; one that is silent is woken.

        Raises:
            NotConfirmed: it has not in time.
        """
        name = Rollout(before).name
        for looks in itertools.count(1):
            rollout = await self.get(name)
            if converged(before, rollout):
                return rollout
            left = min(self._react_seconds - attempts.elapsed, time_left())
            # What is left of a difference of two clocks' floats may be too little for either to move on.
            if left < 1e-6:
                waited = f"nothing came of it in {attempts.elapsed:.0f} s"
                said = f"{name}: sent, and {waited}" if sent else f"{name}: said before, and {waited}"
                raise NotConfirmed(said, hint=likely_cause(Rollout(rollout)))
            await self._waker.look(rollout)
            await self._clock.sleep(min(BACKOFF.pause(looks, 1.0), left))
        raise AssertionError("it waits until there is an end")


def _version(rollout: Json) -> Precondition:
    return Precondition(pod_hash=Rollout(rollout).pod_hash)


class ActionResult(Value):
    """What an action did."""

    sent: tuple[Request, ...]
    """What was sent and accepted; empty when nothing had to change."""
    rollout: Json
    """As it was read back, after the controller reacted."""


def _may_be_done(error: ApiError | Unreachable) -> bool:
    """Whether the write may have come about although no answer said so."""
    return isinstance(error, Unreachable) or (error.status >= 500 and not isinstance(error, Invalid))


def is_resumed(_before: Json, now: Json) -> bool:
    """After `resume`: nobody holds it by hand; it may be in the pause of a step."""
    return not waiting_for_controller(now) and not Rollout(now).paused_by_spec


def is_at_step(before: Json, now: Json, index: int) -> bool:
    """After `to_step`: it is at the step, or has gone on from it.

    Raises:
        NotPossible: when it was aborted or replaced meanwhile.
    """
    was, ro = _same_trial(before, now)
    if waiting_for_controller(now) or is_pause_stale(ro):
        return False
    beyond = ro.step_index >= index
    return beyond and (index >= was.step_index or ro.step_index < was.step_index)


def is_past_all_steps(before: Json, now: Json) -> bool:
    """After `promote_full`: no step and no pause holds it any more; its pods may still be coming up.

    Raises:
        NotPossible: when it was aborted or replaced meanwhile.
    """
    _, ro = _same_trial(before, now)
    if waiting_for_controller(now) or is_pause_stale(ro) or ro.paused_by_spec:
        return False
    return not ro.in_progress or (ro.step is None and not ro.pause_conditions)


def is_aborted(_before: Json, now: Json) -> bool:
    """After `abort`: the controller wrote when it aborted."""
    return is_abort_confirmed(Rollout(now))


def _same_trial(before: Json, now: Json) -> tuple[Rollout, Rollout]:
    was, ro = Rollout(before), Rollout(now)
    if ro.pod_hash != was.pod_hash:
        raise NotPossible(
            f"{ro.name} was given another version meanwhile: {ro.pod_hash}, not {was.pod_hash}",
            hint=f"see: kubectl argo rollouts get rollout {ro.name}",
        )
    if ro.aborted and not was.aborted:
        raise NotPossible(f"{ro.name} was aborted meanwhile", hint=f"see: kubectl argo rollouts get rollout {ro.name}")
    return was, ro
