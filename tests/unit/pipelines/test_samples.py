"""Users' answers that engines kept a sample of: what a spec says of them, and the judge's verdict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.delivery.world import SPEC, World, a_spec
from fakes.services.chat_servers import FakeJudge, an_answer

from gates.analyses.agreement import AgreementGate
from gates.analyses.drift import DriftGate
from gates.analyses.judge import ScoresGate
from gates.answers.samples import TakenSamples, UserSample
from gates.evidence.batch import USUAL_LOOK, ArmName
from gates.judge.judge import Judge, ScoredPairs
from gates.judge.spec import JudgeControl, JudgeGate
from gates.model import GateOutcome
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.traffic import Exposure
from pipelines.model import Ending
from pipelines.plan.gates import traffic_of
from pipelines.run.context import Readers
from pipelines.run.engine import deliver
from pipelines.run.user_answers import (
    MOST_UNDER_WAY,
    RENEW_SECONDS,
    SETTLES_SECONDS,
    TAKE_SECONDS,
    AnsweredUsers,
    CopiedRequests,
)
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


def with_judge(end: str = "", *, canary: str = CANARY, shadow: str = SHADOW) -> str:
    """`end` is more of the spec."""
    lines = [JUDGE if line.startswith("  agreement") else line for line in SPEC.splitlines()]
    lines = [canary if line.startswith("  - canary") else line for line in lines]
    lines = [shadow if line.startswith("  - shadow") else line for line in lines]
    return "\n".join(lines) + "\n" + end


def test_the_judge_in_shadow_takes_our_own_prompts_where_nobody_keeps_users_answers() -> None:
    text = with_judge(shadow=SHADOW.replace("errors", "errors, judge"), canary=CANARY.replace(", judge", ""))
    assert spec(text).sources_in("shadow")["judge"] == ("probe",)
    assert spec(text + "\nsamples: {}\n").sources_in("shadow")["judge"] == ("samples",)


@pytest.mark.parametrize(
    ("weight", "stable", "canary"), [(5, 0.05 / 2 / 0.95, 0.5), (1, 0.05 / 2 / 0.99, 1.0), (50, 0.05, 0.05)]
)
def test_half_of_a_sample_is_of_each_arm_as_far_as_it_has_so_many(weight: int, stable: float, canary: float) -> None:
    samples = SamplesSpec()
    assert samples.share_of(1 - weight / 100) == pytest.approx(stable)
    assert samples.share_of(weight / 100) == pytest.approx(canary)


@pytest.mark.parametrize(
    ("percent", "mirrored", "pairs"), [(10, False, 5.0), (50, False, 5.0), (1, False, 2.0), (50, True, 5.0)]
)
def test_a_plan_knows_how_many_answers_are_compared(percent: int, mirrored: bool, pairs: float) -> None:
    exposure = Exposure(requests_per_second=200, percent=percent, mirrored=mirrored, sampled=0.05, within_seconds=60)
    assert exposure.arrivals("samples").canary == exposure.arrivals("samples").stable == pytest.approx(pairs)
    assert (exposure.timed("samples"), exposure.pairs("samples"), exposure.pairs("proxy")) == (True, mirrored, False)


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
        self._numbers = random.Random(3)

    async def keep(self, region: str, shares: Mapping[str, float]) -> None:
        self.kept.append((region, shares))

    async def require(self, region: str, version: str) -> None:
        pass

    async def take(self, region: str, engine: EngineSet) -> TakenSamples:
        if self.gone:
            raise OutsideError("the engine does not answer")
        count = self.each.get(engine.version, 0)
        found = tuple(self._sample(engine.version, whole=number >= self.left) for number in range(count))
        return TakenSamples(samples=found)

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


def answered(
    engines: Engines, clock: FakeClock, client: FakeJudge | None = None, copied: float | None = None
) -> AbstractAsyncContextManager[AnsweredUsers]:
    """Entered while a canary is there."""
    scored = ScoredPairs(Judge(GATE, client or FakeJudge(), seed=1))
    return AnsweredUsers(engines, clock, ARMS, region="eu", shares=SHARES, scored=scored, copied=copied).taking()


async def passed(clock: FakeClock, seconds: float) -> None:
    """So much time, which passes because samples are taken, and what it takes until everybody has had a turn."""
    until = clock.elapsed + seconds
    while clock.elapsed < until:
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def trial(engines: Engines, *, seconds: float = 200.0) -> SequentialTest:
    """What the gate saw in so many seconds."""
    plan = AnalysisPlan(settings={"judge": ScoresGate(max_drop=0.1)}, sources={"judge": ("samples",)})
    test, clock = SequentialTest(plan), FakeClock()
    async with answered(engines, clock) as answers:
        while clock.elapsed < seconds:
            await passed(clock, 10)
            test.take(answers.drain())
    return test


@pytest.mark.parametrize(
    ("engines", "outcome", "reason"),
    [
        (Engines(canary=0.5), GateOutcome.FAIL, "that its answers are worse"),
        (Engines(), GateOutcome.PASS, ""),
        (Engines(each={"1": 20}), GateOutcome.INCONCLUSIVE, "engines have kept no answer of the canary yet"),
    ],
)
async def test_users_answers_decide(engines: Engines, outcome: GateOutcome, reason: str) -> None:
    verdict = (await trial(engines)).verdicts(deadline_passed=outcome is GateOutcome.INCONCLUSIVE)[0]
    assert (verdict.outcome, reason in verdict.reason) == (outcome, True), verdict


async def test_answers_that_nobody_heard_to_the_end_are_counted_and_not_judged() -> None:
    client, clock = FakeJudge(), FakeClock()
    async with answered(Engines(left=100), clock, client) as answers:
        await passed(clock, TAKE_SECONDS)
        counts = answers.counts
    assert counts["left"] == counts["stable"] + counts["canary"] > 0
    assert client.requests == []


async def test_engines_hear_again_and_again_and_are_told_of_the_end() -> None:
    engines, clock = Engines(), FakeClock()
    async with answered(engines, clock):
        await passed(clock, 4 * RENEW_SECONDS)
    assert engines.kept[0] == ("eu", SHARES)
    assert 3 <= len(engines.kept) <= 5
    assert engines.ended == ["eu"]


async def test_an_engine_that_gives_nothing_away_is_no_evidence() -> None:
    engines, clock = Engines(), FakeClock()
    async with answered(engines, clock) as answers:
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
    async with answered(Engines(), clock, client):
        await passed(clock, 60)
    assert len(client.requests) == 2 * MOST_UNDER_WAY


async def test_a_bug_does_not_look_like_silence() -> None:
    class Broken(Engines):
        async def take(self, region: str, engine: EngineSet) -> TakenSamples:
            raise ZeroDivisionError

    clock = FakeClock()
    async with answered(Broken(), clock) as answers:
        await passed(clock, TAKE_SECONDS)
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(ExceptionGroup):
            answers.drain()


class Copies(Engines):
    """Each request of stable's users goes to both arms; of some the canary's answer is another, or never comes."""

    def __init__(self, *, worse: float = 0.0, lost: float = 0.0, failing: float = 0.0, each: int = 3) -> None:
        super().__init__()
        self.worse, self.lost, self.failing, self.count = worse, lost, failing, each
        self.copies: list[UserSample] = []

    async def take(self, region: str, engine: EngineSet) -> TakenSamples:
        if engine.version == "2":
            found, self.copies = self.copies, []
            return TakenSamples(samples=tuple(found))
        asked = tuple(self._sample("1", whole=True).model_copy(update=KNOWN) for _ in range(self.count))
        dice = self._numbers.random
        for sample in asked:
            words = sample.prompt.removesuffix("?")
            told = {"answer": an_answer(0.1, words)} if dice() < self.worse else {}
            if dice() >= self.lost:
                self.copies.append(sample.model_copy(update={**told, "whole": dice() >= self.failing}))
        return TakenSamples(samples=asked)


KNOWN = {"tokens": 9, "finish_reason": "stop"}
PLAN = AnalysisPlan(
    settings={
        "agreement": AgreementGate(min_similarity=0.95),
        "judge": ScoresGate(max_drop=0.05),
        "drift": DriftGate(),
    },
    sources=dict.fromkeys(("agreement", "judge", "drift"), ("samples",)),
    mirrored=1.0,
)


async def shadowed(engines: Copies, *, seconds: float = 240.0) -> tuple[SequentialTest, list[str]]:
    """What the gates saw of copies in so many seconds, and why nothing may pass at the end."""
    test, clock = SequentialTest(PLAN), FakeClock()
    async with answered(engines, clock, copied=1.0) as answers:
        while clock.elapsed < seconds:
            await passed(clock, 10)
            test.take(answers.drain())
        blind = [each.reason for each in answers.blind()]
    return test, blind


@pytest.mark.parametrize(("worse", "judged"), [(0.0, GateOutcome.PASS), (0.1, GateOutcome.FAIL)])
async def test_a_request_and_its_copy_are_a_pair_of_all_three_gates(worse: float, judged: GateOutcome) -> None:
    test, blind = await shadowed(Copies(worse=worse))
    found = {each.gate: each.outcome for each in test.verdicts(deadline_passed=True)}
    assert (found["judge"], found["drift"], blind) == (judged, GateOutcome.PASS, [])
    assert worse or found["agreement"] is GateOutcome.PASS


async def test_a_delivery_ends_in_shadow_by_what_users_would_have_been_answered(tmp_path: Path) -> None:
    text = with_judge(
        "samples: {}\n",
        shadow=SHADOW.replace("2m, gates: [errors", "9m, gates: [judge"),
        canary=CANARY.replace(", judge", ""),
    )
    world, engines = World(tmp_path, spec(text)), Copies(worse=0.3)
    readers = Readers(judges=lambda: nullcontext(Judge(GATE, FakeJudge(), seed=1)))
    result = await deliver(replace(world.context(), samples=engines, readers=readers))
    assert result.ending is Ending.ROLLED_BACK
    assert "gate judge: canary scores" in result.reason
    assert (engines.kept[0], engines.ended) == (("eu-west-1", {"1": 0.05, "2": 0.05}), ["eu-west-1"])
    assert not any(each.step.startswith("canary") for each in world.recorder.events)


async def test_a_canary_that_fails_copies_is_not_alike() -> None:
    test, _ = await shadowed(Copies(failing=0.3))
    agreement = next(each for each in test.verdicts() if each.gate == "agreement")
    assert agreement.outcome is GateOutcome.FAIL, agreement
    assert "were answered by the canary" in agreement.reason or "alike" in agreement.reason


async def test_copies_that_are_never_answered_keep_everything_from_passing() -> None:
    _, blind = await shadowed(Copies(lost=0.5))
    assert len(blind) == 1 and "of the last 100 sampled requests of users " in blind[0]


def sample(pair: str, prompt: str, answer: str = "yes") -> UserSample:
    return UserSample(at=1.0, pair=pair, prompt=prompt, answer=answer, whole=True, seconds=1.0)


def test_a_pair_has_one_prompt_and_is_told_once_it_had_its_time() -> None:
    copies = CopiedRequests(1.0)
    for arm in ArmName:
        copies.add(arm, sample("a", "before all engines of the canary kept any"), 0.0)
        copies.add(arm, sample("chosen by the user", f"one of {arm}"), SETTLES_SECONDS)
        copies.add(arm, sample("b", "two", f"by {arm}"), SETTLES_SECONDS)
    assert list(copies.joined(SETTLES_SECONDS)) == []
    ((stable, canary),) = copies.joined(2 * SETTLES_SECONDS)
    assert (stable.answer, canary.answer) == ("by stable", "by canary")
    assert list(copies.joined(4 * SETTLES_SECONDS)) == []


def test_few_copies_are_enough_where_few_requests_are_copied() -> None:
    copies = CopiedRequests(0.1)
    copies.add(ArmName.CANARY, sample("first", "what?"), 0.0)
    for number in range(100):
        for arm in (ArmName.STABLE, ArmName.CANARY) if number % 10 == 0 else (ArmName.STABLE,):
            copies.add(arm, sample(str(number), "what?"), SETTLES_SECONDS)
    assert len(list(copies.joined(2 * SETTLES_SECONDS))) == 10
    assert copies.lacking == ""
