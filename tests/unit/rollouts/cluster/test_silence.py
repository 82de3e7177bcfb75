"""Random stories of carriers, API servers and clocks: who renews is never taken for gone, who died always is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from rollouts.cluster.carrier import RENEW_SECONDS, LeaseRecord
from rollouts.cluster.guard import POLL_SECONDS, UNBROKEN_SECONDS, SignsOfLife, SilenceTracker

LASTS = timedelta(seconds=120)
LATEST_TRY = 18.0
"""Of a carrier whose API server is back: its beat, and the longest pause of a request that is repeated."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Story:
    """One carrier, one guard, and the API server between them; all in seconds."""

    away: Sequence[tuple[float, float]]
    """When the API server goes, and for how long."""
    pace: Sequence[float]
    """Between two renewals; then as the last one."""
    looks: Sequence[float]
    """Between two looks of the guard."""
    starts: Sequence[float]
    """When the guard is started again."""
    skew: float
    """How far the carrier's clock is ahead of the guard's."""

    def reachable(self, at: float) -> bool:
        return not any(begin <= at < begin + length for begin, length in self.away)

    def renewals(self, until: float) -> Iterator[float]:
        """When the carrier's Lease says that it lives: at its pace, and soon after an absence."""
        at, turn = 0.0, 0
        while at < until:
            if self.reachable(at):
                yield at
                at += self.pace[min(turn, len(self.pace) - 1)]
                turn += 1
            else:
                at += LATEST_TRY / 2


stories = st.builds(
    Story,
    away=st.lists(st.tuples(st.floats(0, 1500), st.floats(1, 900)), max_size=4),
    pace=st.lists(st.floats(RENEW_SECONDS * 0.5, LATEST_TRY), min_size=1, max_size=5),
    looks=st.lists(st.floats(POLL_SECONDS, POLL_SECONDS * 1.5), min_size=1, max_size=5),
    starts=st.lists(st.floats(0, 1800), max_size=3),
    skew=st.floats(-7200, 7200),
)


def signs(story: Story, renewed: float) -> SignsOfLife:
    moment = BEGIN + timedelta(seconds=renewed + story.skew)
    held = LeaseRecord(token="ci-7", number=1, renewed=moment, lasts=LASTS)
    return SignsOfLife(record=held, asked=("2", "d", 1), step=1)


def taken(story: Story, until: float, *, dies: float = float("inf")) -> float | None:
    """When the guard takes the region; None when it never does."""
    # It was reached when it began.
    beats = [0.0, *(at for at in story.renewals(until) if at <= dies)]
    vigil, starts = SilenceTracker(), sorted(story.starts)
    at, turn = 0.0, 0
    while at < until:
        if starts and starts[0] <= at:
            vigil = SilenceTracker()
            starts = [each for each in starts if each > at]
        if story.reachable(at):
            vigil.sees(signs(story, max(each for each in beats if each <= at)), at)
            if vigil.silence(BEGIN + timedelta(seconds=at), at) > LASTS:
                return at
        else:
            vigil.is_blind()
        at += story.looks[turn % len(story.looks)]
        turn += 1
    return None


@given(stories)
@example(Story(away=[(100, 600)], pace=[10], looks=[10], starts=[], skew=0))
@example(Story(away=[(100, 600)], pace=[10], looks=[10], starts=[650], skew=-7200))
def test_a_carrier_that_renews_is_never_taken_for_gone(story: Story) -> None:
    assert taken(story, 3600) is None


@given(stories, st.floats(0, 1200))
def test_one_that_died_is_always_taken_for_gone(story: Story, dies: float) -> None:
    """Within what its Lease allows, by the guard's own clock alone, and a view of the API server that is back."""
    quiet = max([dies, *story.starts, *(begin + length for begin, length in story.away)])
    found = taken(story, quiet + 3 * LASTS.total_seconds() + UNBROKEN_SECONDS, dies=dies)
    assert found is not None
    assert found <= quiet + LASTS.total_seconds() + UNBROKEN_SECONDS + 4 * POLL_SECONDS


@given(st.floats(0, 600), st.floats(0, 3600))
def test_with_clocks_that_agree_nobody_is_taken_before_the_lease_allows_it(dies: float, away: float) -> None:
    story = Story(away=[(dies, away)] if away else [], pace=[10], looks=[10], starts=[], skew=0)
    found = taken(story, dies + away + 600, dies=dies)
    heard = max(at for at in [0.0, *story.renewals(dies + 1)] if at <= dies)
    assert found is not None
    assert found - heard > LASTS.total_seconds()


def seen_by(vigil: SilenceTracker, *, since: float, until: float, renewed: float, step: int) -> timedelta:
    """Silence after looks that all show the same."""
    calm = Story(away=[], pace=[10], looks=[10], starts=[], skew=-7200)
    at = since
    while at <= until:
        vigil.sees(signs(calm, renewed).model_copy(update={"step": step}), at)
        at += POLL_SECONDS
    return vigil.silence(BEGIN + timedelta(seconds=until), until)


def test_a_step_that_a_person_takes_before_the_guards_eyes_counts_as_heard_of() -> None:
    vigil = SilenceTracker()
    seen_by(vigil, since=0, until=100, renewed=0, step=0)
    assert seen_by(vigil, since=110, until=150, renewed=0, step=1) == timedelta(seconds=40)
