"""What stable did before the canary got its first request: a past to bet on, and the spread between its pods."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from gates.evidence import Arm, Batch
from pipelines.live import Feed
from pipelines.trials import RecordedTrial
from tidegate.core.beside import beside
from tidegate.core.errors import OutsideError

PAST = timedelta(minutes=30)
"""How far back. The longer, the less pods must be taken to differ: simulated, five minutes cost a third more time."""
WINDOW = timedelta(seconds=30)
"""As long as the shortest block over which pods are compared (`gates.evalues.spread`)."""
SILENCE = timedelta(minutes=5)
"""Stable was not there yet when nobody asked it for so long."""


async def learn(trial: RecordedTrial, feeds: Sequence[Feed], now: datetime) -> None:
    """Let the trial see stable alone, window by window.

    It is what to bet on, and no evidence: verdicts count from here on, when both arms serve at the same time.
    """
    for feed in feeds:
        # In a thread, as every reading: everything else of the delivery goes on meanwhile.
        for batch in await beside(past_of, feed, now - feed.source.settles_within):
            trial.take(batch)
    trial.count_anew()


def past_of(feed: Feed, until: datetime) -> Sequence[Batch]:
    """Windows that touch and end at `until`, the oldest first; those before stable's first request are left out."""
    found: list[Batch] = []
    known = 0
    # What cannot be read is no past; a source that is gone is told of by the next look.
    with suppress(OutsideError):
        while (len(found) - known) * WINDOW < SILENCE and len(found) * WINDOW < PAST:
            end = until - len(found) * WINDOW
            found.append(_alone(feed.source.batch(feed.stable, feed.canary, end - WINDOW, end)))
            known = len(found) if any(pod.requests for pod in found[-1].arms) else known
    return found[:known][::-1]


def _alone(batch: Batch) -> Batch:
    stable = tuple(pod for pod in batch.arms if pod.arm is Arm.STABLE)
    return batch.model_copy(update={"arms": stable, "events": None, "drift": None})
