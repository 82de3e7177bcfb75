"""Evidence of live traffic: who counts it, in which windows, and stable's past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, World

from gates.evidence.batch import ArmName, Batch, Source
from gates.model import ArmKey, GateOutcome, Verdict
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from pipelines.model import PlanStep, StageName
from pipelines.run.context import Context
from pipelines.run.evidence import EvidenceStream, counters, evidence_streams, look
from pipelines.run.stages.live import PAST, SILENCE, WINDOW, baseline_of
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeEvidence

STEP = PlanStep(stage=StageName.CANARY, wave=1, region="eu-west-1", weight=10)
TRIAL = "canary@eu-west-1"


def terms(context: Context, asked: Sequence[str], sources: Mapping[str, tuple[Source, ...]]) -> AnalysisPlan:
    """Of some gates alone."""
    return analysis_plan_of(context.spec.gates, asked, sources=sources, share=0.1)


class Eyes:
    """A delivery with what its proxies count and, if so, what its users write down."""

    def __init__(self, folder: Path, *, users: bool) -> None:
        self.world = World(folder)
        self.proxy = self.world.evidence
        self.users = FakeEvidence("users")
        self.users.serves("stable", CHAMPION)
        self.users.serves("canary", CHALLENGER)
        self.context = replace(self.world.context(), users=self.users if users else None)

    async def verdicts(self, *, minutes: float = 2, also_users: bool = True) -> dict[str, Verdict]:
        """What both gates say after so much traffic, looked at every ten seconds."""
        context = self.context
        sources = counters(context, users=also_users)
        trial = context.trials.open(TRIAL, terms(context, ["latency", "errors"], sources), STEP.id)
        feeds = evidence_streams(context, context.arms(STEP), users=also_users)
        verdicts: Sequence[Verdict] = ()
        for _ in range(int(minutes * 6)):
            self.world.clock.elapsed += 10
            verdicts = await look(trial, feeds, context.clock.now(), final=False)
        return {verdict.gate: verdict for verdict in verdicts}


@pytest.fixture
def alone(tmp_path: Path) -> Eyes:
    return Eyes(tmp_path, users=False)


@pytest.fixture
def watched(tmp_path: Path) -> Eyes:
    return Eyes(tmp_path, users=True)


@pytest.mark.parametrize(
    ("who", "sees", "gate", "users", "outcome"),
    [
        # Users' own times are what counts where somebody writes them down, and failures whoever saw them.
        ("proxy", {"ttft": 0.5}, "latency", True, GateOutcome.PASS),
        ("users", {"ttft": 0.5}, "latency", True, GateOutcome.FAIL),
        ("proxy", {"failed": 0.3}, "errors", True, GateOutcome.FAIL),
        ("users", {"failed": 0.3}, "errors", True, GateOutcome.FAIL),
        # Copies have no users.
        ("users", {"failed": 0.3}, "errors", False, GateOutcome.PASS),
    ],
)
async def test_who_is_believed(
    watched: Eyes, *, who: str, sees: dict[str, float], gate: str, users: bool, outcome: GateOutcome
) -> None:
    getattr(watched, who).serves("canary", CHALLENGER, **sees)
    assert (await watched.verdicts(also_users=users))[gate].outcome is outcome


async def test_no_evidence_of_one_arm_is_never_a_pass(alone: Eyes) -> None:
    del alone.proxy.loads["canary", CHALLENGER]
    verdicts = await alone.verdicts()
    assert {verdict.outcome for verdict in verdicts.values()} == {GateOutcome.RUNNING}
    assert verdicts["errors"].reason == ("no requests of the canary: nothing of canary version 2 in eu-west-1")


def test_every_moment_is_in_exactly_one_window(alone: Eyes) -> None:
    world, start = alone.world, alone.world.now()
    feed = EvidenceStream(alone.proxy, *alone.context.arms(STEP), start, timedelta(seconds=10))
    for seconds in (4, 4, 4, 30, 10, 3):
        world.clock.elapsed += seconds
        feed.next(world.now(), final=False)
    world.clock.elapsed += 1
    assert feed.next(world.now(), final=True)
    windows = alone.proxy.windows
    assert all(earlier[1] == later[0] for earlier, later in pairwise(windows))
    assert (windows[0][0], windows[-1][1]) == (start, world.now())
    assert all(until - since >= timedelta(seconds=10) for since, until in windows[:-1])


def test_a_window_ends_before_what_is_still_on_its_way(alone: Eyes) -> None:
    alone.proxy.settles_within = timedelta(seconds=5)
    feed = EvidenceStream(alone.proxy, *alone.context.arms(STEP), alone.world.now(), timedelta(seconds=10))
    alone.world.clock.elapsed += 14
    assert feed.next(alone.world.now(), final=False) is None
    alone.world.clock.elapsed += 1
    batch = feed.next(alone.world.now(), final=False)
    assert batch
    assert batch.time == (alone.world.now() - timedelta(seconds=5)).timestamp()


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
