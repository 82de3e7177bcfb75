"""The health of a Rollout: its phase, and what the phase does not tell apart.

Argo Rollouts calls three things by one name each that need different hands: a rollout whose controller does not get
on with it looks like progress for ever; one that waits for a person looks like one whose analysis could not decide;
and Degraded says nothing of why.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from rollouts.argo.model import Rollout
from rollouts.argo.owed import debt_of, likely_cause
from rollouts.argo.phase import Phase, RolloutPhase, phase_of
from rollouts.argo.reasons import undecided, where, why_degraded, why_paused, why_undecided
from rollouts.kube.model import Json
from tidegate.core.model import Value

__all__ = ["STUCK_AFTER_SECONDS", "Health", "Lag", "State", "health_of", "lag_of", "likely_cause"]

STUCK_AFTER_SECONDS = 60.0
"""A controller that is well reacts within seconds; its full resync is at most minutes away, its retries far less."""


class State(StrEnum):
    """What an operator would do something different about."""

    HEALTHY = "healthy"
    PROGRESSING = "progressing"
    PAUSED = "paused"
    """By a step, before the switch of blue-green, or by a person."""
    INCONCLUSIVE = "paused-inconclusive"
    """An analysis or an experiment could not decide; somebody has to."""
    DEGRADED = "degraded"
    """Aborted, past its deadline, or with a spec that the controller refuses."""
    STUCK = "stuck"
    """The controller does not react, though its own rules call it progress."""


class Health(Value):
    """How a rollout is, and why."""

    state: State
    message: str = ""
    """In Argo Rollouts' own words."""
    cause: str = ""
    """What is behind it, as far as the object tells."""


class Lag(Value):
    """The controller has not reacted to something."""

    since: datetime
    observed: str
    """The generation that it last saw: when this moves it works, however far behind."""


def lag_of(rollout: Json, *, now: datetime, before: Lag | None = None, workload: Json | None = None) -> Lag | None:
    """Since when the controller owes a reaction; None when it owes none. `before` is what was said at the last look.

    At the first look the time is the object's own: of the last change that `metadata.managedFields` knows.
    """
    debt = debt_of(rollout, workload)
    if debt is None:
        return None
    observed = str(Rollout(rollout).status.get("observedGeneration") or "")
    if before:
        return before if before.observed == observed else Lag(since=now, observed=observed)
    return Lag(since=min(debt.since or now, now), observed=observed)


def health_of(
    rollout: Json,
    *,
    now: datetime,
    lagging_since: datetime | None = None,
    stuck_after_seconds: float = STUCK_AFTER_SECONDS,
    workload: Json | None = None,
) -> Health:
    """How it is at `now`. `lagging_since` is `lag_of(...).since` of whoever watches; without it, the object's own."""
    seen, debt = Rollout(rollout), debt_of(rollout, workload)
    if debt is None:
        return _as_phase(seen, phase_of(rollout, workload=workload))
    since = lagging_since or debt.since or now
    if now - since > timedelta(seconds=stuck_after_seconds):
        message = f"{debt.text} since {since.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        return Health(state=State.STUCK, message=message, cause=likely_cause(seen))
    return Health(state=State.PROGRESSING, message=debt.text, cause=where(seen))


def _as_phase(seen: Rollout, phase: RolloutPhase) -> Health:
    match phase.phase:
        case Phase.DEGRADED:
            return Health(state=State.DEGRADED, message=phase.message, cause=why_degraded(seen, phase.message))
        case Phase.PAUSED if undecided(seen):
            return Health(state=State.INCONCLUSIVE, message=phase.message, cause=why_undecided(seen))
        case Phase.PAUSED:
            return Health(state=State.PAUSED, message=phase.message, cause=why_paused(seen))
        case Phase.PROGRESSING:
            return Health(state=State.PROGRESSING, message=phase.message, cause=where(seen))
        case Phase.HEALTHY:
            return Health(state=State.HEALTHY, message=phase.message)
