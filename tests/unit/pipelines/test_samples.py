"""Users' answers that engines kept a sample of: what a spec says of them, and the judge's verdict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest
from fakes.delivery.world import SPEC, a_spec
from fakes.services.chat_servers import FakeJudge, an_answer

from engine_images.samples.key import REDACTED
from gates.analyses.judge import ScoresGate
from gates.answers.samples import TakenSamples, UserSample
from gates.evidence.batch import USUAL_LOOK, ArmName
from gates.judge.judge import Judge
from gates.judge.spec import JudgeControl, JudgeGate
from gates.model import GateOutcome
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.traffic import Exposure
from pipelines.plan.gates import traffic_of
from pipelines.run.stages.live import MOST_UNDER_WAY, RENEW_SECONDS, TAKE_SECONDS, SampledAnswers
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import SamplesSpec
from rollouts.model import EngineSet, Role
from tidegate.core.errors import OutsideError
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeClock

JUDGE = "  judge: {endpoint: 'http://127.0.0.1:9/v1', model: judge}"
SHADOW = "  - shadow: {at_least: 10s, within: 2m, gates: [errors]}"
CANARY = "  - canary: {weights: [10, 50], within: 5m, gates: [errors, judge]}"


def spec(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


def with_judge(more: str) -> str:
    lines = [JUDGE if line.startswith("  agreement") else line for line in SPEC.splitlines()]
    lines = [CANARY if line.startswith("  - canary") else line for line in lines]
    lines = [SHADOW if line.startswith("  - shadow") else line for line in lines]
    return "\n".join(lines) + "\n" + more


def test_it_says_what_is_taken_out_and_for_how_long() -> None:
    text = with_judge("samples: {redact: [email, phone], words: [ACME], keep: 1m, max_megabytes: 4}\n")
    samples = spec(text).samples
    assert samples is not None
    assert (samples.redact, samples.words, samples.keep.total_seconds()) == (("email", "phone"), ("ACME",), 60.0)
    assert SamplesSpec().redact == REDACTED


@pytest.mark.parametrize(
    ("weight", "stable", "canary"), [(5, 0.05 / 2 / 0.95, 0.5), (1, 0.05 / 2 / 0.99, 1.0), (50, 0.05, 0.05)]
)
def test_half_of_a_sample_is_of_each_arm_as_far_as_it_has_so_many(weight: int, stable: float, canary: float) -> None:
    samples = SamplesSpec()
    assert samples.share_of(1 - weight / 100) == pytest.approx(stable)
    assert samples.share_of(weight / 100) == pytest.approx(canary)


@pytest.mark.parametrize(("percent", "pairs"), [(10, 5.0), (50, 5.0), (1, 2.0)])
def test_a_plan_knows_how_many_answers_are_judged(percent: int, pairs: float) -> None:
    exposure = Exposure(requests_per_second=200, percent=percent, sampled=0.05, within_seconds=60)
    assert exposure.arrivals("samples").canary == pytest.approx(pairs)
    assert exposure.timed("samples")


def test_a_plans_traffic_is_that_of_the_spec() -> None:
    for asked, share in ((spec(with_judge("samples: {share: 20%}\n")), 0.2), (a_spec(), 1.0)):
        assert asked.canary is not None
        seen = traffic_of(asked, asked.canary, 10)
        assert (seen.sampled, seen.look_seconds) == (pytest.approx(share), USUAL_LOOK.total_seconds())


GATE = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="judge", control=JudgeControl(min_asked=10, share=0.5))
SHARES = {"1": 0.05, "2": 0.5}


class Engines:
    """`UserSamples` of two engines, whose users ask so many questions between two times."""

    def __init__(self, *, canary: float = 0.8, each: Mapping[str, int] = {"1": 20, "2": 6}, left: int = 0) -> None:
        self.worth, self.each, self.left = {"1": 0.8, "2": canary}, each, left
        self.kept: list[tuple[str, Mapping[str, float]]] = []
        self.ended: list[str] = []
        self.gone = False
        self.problem = ""
        self.away = False
        self._numbers = random.Random(3)

    async def keep(self, region: str, shares: Mapping[str, float]) -> None:
        if self.away:
            raise OutsideError("the cluster does not answer")
        self.kept.append((region, shares))

    async def require(self, region: str, version: str) -> None:
        pass

    async def take(self, region: str, engine: EngineSet) -> TakenSamples:
        if self.gone:
            raise OutsideError("the engine does not answer")
        count = self.each.get(engine.version, 0)
        found = tuple(self._sample(engine.version, whole=number >= self.left) for number in range(count))
        return TakenSamples(samples=found, problem=self.problem)

    async def end(self, region: str) -> None:
        self.ended.append(region)

    def _sample(self, version: str, *, whole: bool) -> UserSample:
        words = f"number{self._numbers.randrange(10**9)}"
        # Prompts differ in how well anybody answers them.
        worth = min(1.0, max(0.0, self.worth[version] + self._numbers.gauss(0, 0.15)))
        return UserSample(
            at=1.0, pair=words, prompt=f"{words}?", answer=an_answer(worth, words), whole=whole, seconds=1.0
        )


def engine(role: Role, version: str) -> EngineSet:
    return EngineSet(role=role, version=version, digest="d", url=f"http://{version}", ready=True)


ARMS = {ArmName.STABLE: engine(Role.STABLE, "1"), ArmName.CANARY: engine(Role.CANARY, "2")}


def sampled(engines: Engines, clock: FakeClock, client: FakeJudge | None = None) -> SampledAnswers:
    judge = Judge(GATE, client or FakeJudge(), seed=1)
    return SampledAnswers(engines, judge, clock, ARMS, region="eu", shares=SHARES)


async def passed(clock: FakeClock, seconds: float) -> None:
    """So much time, which passes because samples are taken, and what it takes until everybody has had a turn."""
    until = clock.elapsed + seconds
    while clock.elapsed < until:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def trial(engines: Engines, client: FakeJudge | None = None, *, seconds: float = 200.0) -> SequentialTest:
    """What the gate saw in so many seconds."""
    plan = AnalysisPlan(settings={"judge": ScoresGate(max_drop=0.1)}, sources={"judge": ("samples",)})
    test, clock = SequentialTest(plan), FakeClock()
    async with sampled(engines, clock, client) as answers:
        while clock.elapsed < seconds:
            await passed(clock, 10)
            test.take(answers.drain())
    return test


async def test_a_version_that_answers_users_worse_fails() -> None:
    verdict = (await trial(Engines(canary=0.5))).verdicts()[0]
    assert verdict.outcome is GateOutcome.FAIL, verdict
    assert "that its answers are worse" in verdict.reason


async def test_one_that_answers_as_well_passes() -> None:
    verdict = (await trial(Engines())).verdicts()[0]
    assert verdict.outcome is GateOutcome.PASS, verdict


async def test_users_of_one_arm_alone_prove_nothing() -> None:
    verdict = (await trial(Engines(each={"1": 20}))).verdicts(deadline_passed=True)[0]
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert "engines have kept no answer of the canary's users yet" in verdict.reason


async def test_answers_that_nobody_heard_to_the_end_are_counted_and_not_judged() -> None:
    client, clock = FakeJudge(), FakeClock()
    async with sampled(Engines(left=100), clock, client) as answers:
        await passed(clock, TAKE_SECONDS)
        counts = answers.counts
    assert counts["left"] == counts["stable"] + counts["canary"] > 0
    assert client.requests == []


async def test_engines_hear_again_and_again_and_are_told_of_the_end() -> None:
    engines, clock = Engines(), FakeClock()
    async with sampled(engines, clock):
        await passed(clock, 4 * RENEW_SECONDS)
    assert engines.kept[0] == ("eu", SHARES)
    assert 3 <= len(engines.kept) <= 5
    assert engines.ended == ["eu"]


async def test_an_engine_that_gives_nothing_away_is_no_evidence() -> None:
    engines, clock = Engines(), FakeClock()
    async with sampled(engines, clock) as answers:
        engines.gone = True
        await passed(clock, TAKE_SECONDS)
        assert [(each.gate, each.outcome) for each in answers.blind()] == [("evidence", GateOutcome.ERROR)]
        engines.gone = False
        await passed(clock, TAKE_SECONDS)
        assert list(answers.blind()) == []


async def test_a_slow_judge_holds_few_answers() -> None:
    class Slow(FakeJudge):
        async def ask(self, request):  # type: ignore[no-untyped-def]
            self.requests.append(request)
            await asyncio.Event().wait()

    client, clock = Slow(), FakeClock()
    async with sampled(Engines(), clock, client):
        await passed(clock, 60)
    assert len(client.requests) == 2 * MOST_UNDER_WAY


async def test_a_bug_does_not_look_like_silence() -> None:
    class Broken(Engines):
        async def take(self, region: str, engine: EngineSet) -> TakenSamples:
            raise ZeroDivisionError

    clock = FakeClock()
    async with sampled(Broken(), clock) as answers:
        await passed(clock, TAKE_SECONDS)
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(ExceptionGroup):
            answers.drain()
