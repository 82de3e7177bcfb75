"""Every action on a Rollout of one cluster: read, decide, send, and read back until the controller has done it.

A conflict is decided again, an answer that was lost is looked up, and the action is complete once the controller has
processed it. A patch of the status moves no generation, so that `observedGeneration` says nothing about it: what the
controller made of it has to show in the fields that it writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

from rollouts.argo import compare_and_set
from rollouts.argo.compare_and_set import ANY_STATE, Precondition, with_resource_version
from rollouts.argo.model import Rollout, parse_time
from rollouts.argo.patches import Requests, next_step
from rollouts.argo.state import (
    has_aborted_condition,
    is_abort_confirmed,
    is_pause_stale,
    likely_cause,
    waiting_for_controller,
)
from rollouts.argo.templates import containers_of, templates_match, with_image
from rollouts.argo.waking import Waker
from rollouts.argo.workload import replica_sets_of, workload_of
from rollouts.errors import ApiError, Conflict, Invalid, NotConfirmed, NotPossible, Unreachable
from rollouts.kube.model import Request
from rollouts.kube.ports import Cluster
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

DecideAsync = Callable[[Json, Precondition], Awaitable[Requests]]
"""The same, for what has to be read first."""

Converged = Callable[[Json, Json], bool]
"""Whether an action had its effect, by the Rollout before and now: one of the predicates below."""


def _always(_: Json) -> None:
    """Nothing is refused."""


class RolloutClient:
    """The Rollouts of one cluster's namespace.

    Each action raises `NotPossible` when it is refused or overtaken, `NotConfirmed` when its effect does not show in
    time, and what the port `Cluster` raises. `expected` is where the rollout is thought to be; by default, where it is
    found.
    """

    def __init__(
        self,
        cluster: Cluster,
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

    async def promote(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """Out of the pause that it is in, to whatever comes next."""
        return await self._carry_out(name, compare_and_set.promote, has_left_pause, expected)

    async def promote_full(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """Past all steps; returns once none holds it, which is before every pod is up."""
        return await self._carry_out(name, compare_and_set.promote_full, is_past_all_steps, expected, at=_version)

    async def skip_step(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """Past the running step, a pause or an analysis."""
        rollout = await self.get(name)
        found = Precondition.of(rollout)
        # The step too: decided again after a lost answer, a version alone would be moved by one more.
        meant = found.model_copy(update=expected.model_dump(exclude_none=True) if expected else {})
        skipped = partial(is_at_step, index=next_step(Rollout(rollout)))
        return await self._carry_out(name, compare_and_set.skip_step, skipped, meant)

    async def to_step(self, name: str, index: int, expected: Precondition | None = None) -> ActionResult:
        """To the step with this index, up or down."""

        def decide(rollout: Json, expected: Precondition) -> Requests:
            return compare_and_set.to_step(rollout, index, expected)

        return await self._carry_out(name, decide, partial(is_at_step, index=index), expected)

    async def abort(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """All users back to the stable version, at whatever step the other one is by now."""
        return await self._carry_out(name, compare_and_set.abort, is_aborted, expected, at=_version)

    async def retry(self, name: str, expected: Precondition | None = None) -> ActionResult:
        """The aborted version again, from its first step."""
        return await self._carry_out(name, compare_and_set.retry, is_retried, expected, at=_version)

    async def pause(self, name: str, expected: Precondition = ANY_STATE) -> ActionResult:
        """Hold everything where it is."""
        return await self._carry_out(name, compare_and_set.pause, is_paused, expected)

    async def resume(self, name: str, expected: Precondition = ANY_STATE) -> ActionResult:
        """Let go what `pause` holds, and nothing else."""
        return await self._carry_out(name, compare_and_set.resume, is_resumed, expected)

    async def restart(self, name: str, at: datetime, expected: Precondition = ANY_STATE) -> ActionResult:
        """New pods for those that are older than `at`."""

        def decide(rollout: Json, expected: Precondition) -> Requests:
            return compare_and_set.restart(rollout, at, expected)

        return await self._carry_out(name, decide, partial(is_restarting, at=at), expected)

    async def undo(self, name: str, revision: int = 0, expected: Precondition | None = None) -> ActionResult:
        """The pod template of an earlier revision; 0 is the stable one while another is on its way."""
        # Which revision is meant is decided once: going back to one gives it a new number.
        rollout = await self.get(name)
        replica_sets = await replica_sets_of(self._cluster, rollout, await workload_of(self._cluster, rollout))
        template = compare_and_set.template_of(rollout, replica_sets, revision)

        async def decide(rollout: Json, expected: Precondition) -> Requests:
            return compare_and_set.restore(
                rollout, template, expected, workload=await workload_of(self._cluster, rollout)
            )

        converged = partial(has_template, template=template)
        return await self._carry_out(name, decide, converged, expected or _version(rollout))

    async def set_image(
        self, name: str, container: str, image: str, expected: Precondition | None = None
    ) -> ActionResult:
        """Another image for every container of that name, or for all with `*`."""

        async def decide(rollout: Json, expected: Precondition) -> Requests:
            workload = await workload_of(self._cluster, rollout)
            return compare_and_set.set_image(rollout, container, image, expected, workload=workload)

        converged = partial(has_image, container=container, image=image)
        return await self._carry_out(name, decide, converged, expected, at=_version)

    async def _carry_out(
        self,
        name: str,
        decide: Decide | DecideAsync,
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
                decided = decide(rollout, precondition)
                for request in decided if isinstance(decided, tuple) else await decided:
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
                workload = await workload_of(self._cluster, rollout)
                if workload is None or not waiting_for_controller(rollout, workload=workload):
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


def has_left_pause(before: Json, now: Json) -> bool:
    """After `promote` or `resume`: it moves again, or is in another pause than before.

    Raises:
        NotPossible: when it was aborted or replaced meanwhile.
    """
    was, ro = _same_trial(before, now)
    if waiting_for_controller(now) or ro.paused_by_spec:
        return False
    return ro.step_index != was.step_index or not ro.pause_conditions or _pauses(ro) != _pauses(was)


def is_resumed(_before: Json, now: Json) -> bool:
    """After `resume`: nobody holds it by hand; it may be in the pause of a step."""
    return not waiting_for_controller(now) and not Rollout(now).paused_by_spec


def is_paused(_before: Json, now: Json) -> bool:
    """After `pause`."""
    return not waiting_for_controller(now) and Rollout(now).paused_by_spec


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


def is_retried(before: Json, now: Json) -> bool:
    """After `retry`: it is on its way again, or was aborted once more."""
    was, ro = Rollout(before), Rollout(now)
    if ro.aborted:
        return ro.status.get("abortedAt") != was.status.get("abortedAt")
    return not has_aborted_condition(ro)


def is_restarting(_before: Json, now: Json, at: datetime) -> bool:
    """After `restart`: the controller knows of it; pods follow one after the other."""
    desired = parse_time(Rollout(now).spec.get("restartAt"))
    return not waiting_for_controller(now) and desired is not None and desired >= at.replace(microsecond=0)


def has_image(_before: Json, now: Json, container: str, image: str) -> bool:
    """After `set_image`: the template has it, and the controller knows the template."""
    if waiting_for_controller(now):
        return False
    return _elsewhere(now) or containers_of(with_image(now, container, image)) == containers_of(now)


def has_template(_before: Json, now: Json, template: Json) -> bool:
    """After `undo`: the template is that one, and the controller knows it."""
    if waiting_for_controller(now):
        return False
    return _elsewhere(now) or templates_match(now["spec"]["template"], template)


def _elsewhere(now: Json) -> bool:
    """Whether the template is a workload's, which is compared with what the controller saw of it."""
    return Rollout(now).workload_ref is not None


def _same_trial(before: Json, now: Json) -> tuple[Rollout, Rollout]:
    was, ro = Rollout(before), Rollout(now)
    if ro.pod_hash != was.pod_hash:
        raise NotPossible(
            f"{ro.name} was given another version meanwhile: {ro.pod_hash}, not {was.pod_hash}",
            hint=f"see: tidegate rollout get {ro.name}",
        )
    if ro.aborted and not was.aborted:
        raise NotPossible(f"{ro.name} was aborted meanwhile", hint=f"see: tidegate rollout get {ro.name}")
    return was, ro


def _pauses(ro: Rollout) -> list[tuple[object, object]]:
    return [(condition.get("reason"), condition.get("startTime")) for condition in ro.pause_conditions]
