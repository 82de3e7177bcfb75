"""What a trial learns of stable before there is a canary."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from gates.evidence.batch import ArmName, Batch
from gates.model import ArmKey
from pipelines.run.evidence import EvidenceStream
from pipelines.run.stages.live import PAST, SILENCE, WINDOW, baseline_of
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeEvidence

NOW = datetime(2026, 11, 21, 3, tzinfo=UTC)
STABLE, CANARY = (
    ArmKey(region="eu-west-1", role=role, version=version) for role, version in (("stable", "6"), ("canary", "7"))
)


class Begun(FakeEvidence):
    """Users came at `since`, and what is before `kept_since` is kept no longer."""

    def __init__(self, since: datetime, kept_since: datetime = NOW - 2 * PAST) -> None:
        super().__init__()
        self._since, self._kept_since = since, kept_since
        self.serves("stable", "6", per_second=1)
        self.serves("canary", "7", per_second=1)

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        if since < self._kept_since:
            raise OutsideError("not kept any more")
        batch = super().batch(stable, canary, since, until)
        return batch if until > self._since else batch.model_copy(update={"arms": ()})


def feed(source: FakeEvidence) -> EvidenceStream:
    return EvidenceStream(source, STABLE, CANARY, NOW, timedelta(seconds=10))


def test_the_whole_past_is_learnt_in_windows_that_touch_the_oldest_first() -> None:
    source = Begun(since=NOW - 2 * PAST)
    past = baseline_of(feed(source), NOW)
    assert [batch.time for batch in past] == sorted(batch.time for batch in past)
    assert len(past) == PAST / WINDOW
    assert past[-1].time == NOW.timestamp()
    assert all(until - since == WINDOW for since, until in source.windows)
    assert all(later[0] == earlier[1] for later, earlier in pairwise(source.windows))


def test_only_stable_is_learnt() -> None:
    past = baseline_of(feed(Begun(since=NOW - PAST)), NOW)
    assert {pod.arm for batch in past for pod in batch.arms} == {ArmName.STABLE}


def test_what_was_before_the_first_request_is_not_asked_for_long() -> None:
    source = Begun(since=NOW - 4 * WINDOW)
    assert len(baseline_of(feed(source), NOW)) == 4
    assert len(source.windows) == 4 + SILENCE / WINDOW


def test_a_silent_window_is_no_end() -> None:
    source = Begun(since=NOW - PAST)
    source.serves("stable", "6", per_second=1 / 100)
    past = baseline_of(feed(source), NOW)
    assert sum(pod.requests for batch in past for pod in batch.arms) == PAST / timedelta(seconds=100)


def test_a_source_that_is_gone_or_forgot_leaves_what_was_found() -> None:
    gone = FakeEvidence()
    gone.gone = True
    assert baseline_of(feed(gone), NOW) == []
    assert len(baseline_of(feed(Begun(since=NOW - PAST, kept_since=NOW - 3 * WINDOW)), NOW)) == 3
