"""Where a Rollout's steps wait for somebody to decide: one hold for each weight. Pure.

A delivery decides when users move, so the steps that it renders only ever pause for good. What stands between two
such pauses (more engines for the canary, then its weight) belongs to the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.argo.model import PauseReason, Rollout
from rollouts.errors import NotPossible
from rollouts.kube.model import Json


@dataclass(frozen=True)
class Hold:
    """A pause without an end, and the way to it."""

    weight: int
    """Percent of users that the canary has there."""
    first: int
    """The first step on the way up: engines come before users."""
    weigh: int
    """The step that sets the weight: on the way down users go before engines."""
    pause: int
    """The pause itself."""


def holds_of(steps: Sequence[Json]) -> tuple[Hold, ...]:
    """All of them, in order; none for blue-green, which has no steps."""
    found: list[Hold] = []
    weight, first, weigh = 0, 0, 0
    for index, step in enumerate(steps):
        if step.get("setWeight") is not None:
            weight, weigh = int(step["setWeight"]), index
        if "pause" in step and not (step["pause"] or {}).get("duration"):
            found.append(Hold(weight=weight, first=first, weigh=max(weigh, first), pause=index))
            first = index + 1
    return tuple(found)


def way_to(rollout: Rollout, weight: int) -> tuple[Hold, ...]:
    """The holds to go through until the canary has that weight; empty when it is there.

    Upwards through each one in between, so that engines are up before users come; downwards at once.

    Raises:
        NotPossible: when no step has that weight.
    """
    holds = holds_of(rollout.steps)
    wanted = next((hold for hold in holds if hold.weight == weight), None)
    if wanted is None:
        known = ", ".join(f"{hold.weight} %" for hold in holds)
        raise NotPossible(
            f"{rollout.name} has no step with {weight} % of users", hint=f"its steps have {known}" if known else None
        )
    if rests_at(rollout, wanted):
        return ()
    if rollout.step_index > wanted.pause:
        return (wanted,)
    # A hold that it is on its way to is said again: whoever asked for it first may be gone.
    return tuple(
        hold for hold in holds if rollout.step_index <= hold.pause <= wanted.pause and not rests_at(rollout, hold)
    )


def entry_of(rollout: Rollout, hold: Hold) -> int:
    """The step to be put at in order to come to rest at `hold`."""
    if rollout.step_index > hold.pause:
        return hold.weigh
    # On its way there, or at its pause already: that goes on by itself.
    return max(rollout.step_index, hold.first)


def rests_at(rollout: Rollout, hold: Hold) -> bool:
    """Whether the controller has come to that pause, and waits."""
    return rollout.step_index == hold.pause and paused_by(rollout, PauseReason.STEP)


def paused_by(rollout: Rollout, reason: PauseReason) -> bool:
    """Whether the controller itself waits for that reason."""
    return any(condition.get("reason") == reason for condition in rollout.pause_conditions)
