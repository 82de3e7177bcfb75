"""Asks a stage's gates again and again until they decide, the time is over, or the region breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gates.model import Outcome, Verdict, worst
from pipelines.context import Context
from pipelines.errors import Stopped, by_others
from pipelines.model import ENDING_OF, Ending, Step
from rollouts.model import RegionState
from tidegate.core.errors import OutsideError

LOOK_SECONDS = 2.0
"""Between two looks: Prometheus has nothing new sooner."""

Ask = Callable[[bool], Awaitable[Sequence[Verdict]]]
"""Called with whether the time is over; answers with every gate's verdict."""


@dataclass(frozen=True)
class Window:
    """How long a stage lasts, in seconds: at least, and at most."""

    at_least: float
    within: float


async def watch(context: Context, step: Step, window: Window, ask: Ask) -> None:
    """Return when every gate passes.

    Raises:
        Stopped: when a gate fails, the time is over without a verdict, or the canary is gone.
    """
    start = context.clock.monotonic()
    last_seen = start
    while True:
        # The region first: what gates say of a canary that is gone, or at another weight, is of no use.
        state = await context.fleet(step).observe()
        refuse_dead_canary(context, state)
        _refuse_other_weight(step, state)
        context.journal.check()
        elapsed = context.clock.monotonic() - start
        verdicts = await _look(ask, final=elapsed >= window.within)
        for verdict in verdicts:
            context.journal.verdict(step, verdict, context.trials.written(step.id))
        outcome = worst(verdict.outcome for verdict in verdicts)
        if outcome is not Outcome.ERROR:
            last_seen = context.clock.monotonic()
        is_blind = context.clock.monotonic() - last_seen >= context.spec.patience.metrics.total_seconds()
        # A pass comes first: evidence that arrives with the deadline is evidence.
        if outcome is Outcome.PASS and elapsed >= window.at_least and not _must_stay(context, elapsed, window):
            return
        if outcome is Outcome.FAIL or elapsed >= window.within or is_blind:
            raise Stopped(ENDING_OF[outcome], _reason(verdicts, outcome))
        await context.clock.sleep(LOOK_SECONDS)


def _must_stay(context: Context, elapsed: float, window: Window) -> bool:
    """Whether to go on watching, since the next step could not begin: a canary with users is not left alone."""
    return context.journal.is_behind and elapsed < window.within


async def _look(ask: Ask, *, final: bool) -> Sequence[Verdict]:
    try:
        return await ask(final)
    except OutsideError as error:
        return [Verdict(gate="evidence", outcome=Outcome.ERROR, reason=str(error))]


def _reason(verdicts: Sequence[Verdict], outcome: Outcome) -> str:
    culprits = [verdict for verdict in verdicts if verdict.outcome is outcome]
    return "; ".join(f"gate {verdict.gate}: {verdict.reason}" for verdict in culprits)


def refuse_dead_canary(context: Context, state: RegionState) -> None:
    """A canary that died has no verdict to wait for, and no users to get.

    Raises:
        Stopped: it died, which is the version's fault; or as `refuse_others`.
    """
    refuse_others(context, state)
    canary = state.canary
    if canary is None:
        raise Stopped(Ending.ROLLED_BACK, f"the canary does not serve: {state.problem or 'it is gone'}")
    if not canary.ready:
        # A reason is one line; the rest of the log is where logs are.
        words = (canary.problem or "nothing").splitlines()[-1].strip()
        raise Stopped(Ending.ROLLED_BACK, f"the canary does not serve; its log ends with: {words}")


def refuse_others(context: Context, state: RegionState) -> None:
    """Somebody else changed the region meanwhile, which is not the version's fault, however its engines are by now.

    Raises:
        Stopped: the region is asked for another version, or what serves there is somebody else's.
    """
    foreign = state.foreign_wish
    if foreign and foreign.version != context.plan.version.version:
        raise by_others(foreign.reason)
    if state.strangers:
        raise by_others("; ".join(str(each) for each in state.strangers))


def _refuse_other_weight(step: Step, state: RegionState) -> None:
    """Evidence at a weight that this delivery did not set says nothing about this step."""
    if step.weight is not None and state.weight != step.weight:
        writer = f", last written by {state.route_writer}" if state.route_writer else ""
        raise by_others(f"somebody else set the weight to {state.weight} %; this delivery set {step.weight} %{writer}")
