"""The drift gate: fair questions, like answers, and no alarm by asking often."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from gates.analyses.drift import (
    EDGES,
    TRAITS,
    Comparison,
    DriftGate,
    DriftMonitor,
    Feature,
    requests_to_pass,
    spending,
)
from gates.evidence.batch import ArmName, Batch, PairedAnswer, PairedReply
from gates.model import GateOutcome, Verdict
from gates.stats.divergence import psi
from tidegate.core.spec import SpecError, parse_spec

ALPHA = 0.01
FINISH_ONLY = DriftGate(features={Feature.FINISH_REASON: 0.2})


class Crowd:
    """Users and the answers they get, from seeded dice."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def answers(
        self, count: int, *, longer: float = 1.0, german: float = 0.1, declined: float = 0.03, limit: int = 128
    ) -> tuple[PairedReply, ...]:
        tokens = np.minimum(limit, np.ceil(self.rng.lognormal(3.5, 0.8, count) * longer))
        return tuple(
            PairedReply(
                prompt_characters=int(characters), prompt_language="de" if is_german else "en",
                output_tokens=int(length), finish_reason="length" if length >= limit else "stop",
                refusal=bool(is_declined),
            )
            for characters, is_german, length, is_declined in zip(
                self.rng.gamma(2, 100, count).round(), self.rng.random(count) < german, tokens,
                self.rng.random(count) < declined, strict=True,
            )
        )  # fmt: skip


def of_arms(stable: Sequence[PairedReply], canary: Sequence[PairedReply]) -> Batch:
    return Batch(time=1, source="samples", answers={ArmName.STABLE: tuple(stable), ArmName.CANARY: tuple(canary)})


ENDED = [PairedReply(finish_reason=name) for name in ("length", "stop", "tool_calls")]


def ended(*counts: int) -> tuple[PairedReply, ...]:
    """So many answers that were cut, that ended by themselves, and that called a tool."""
    return tuple(reply for reply, count in zip(ENDED, counts, strict=True) for _ in range(count))


def monitor(settings: DriftGate, *batches: Batch, alpha: float = ALPHA, paired: bool = False) -> DriftMonitor:
    """With these batches taken."""
    found = DriftMonitor(settings, rollback=alpha, paired=paired)
    for each in batches:
        found.take(each, 10)
    return found


def of(seen: DriftMonitor, feature: Feature) -> Comparison:
    return next(each for each in seen.comparisons if each.feature is feature)


def run(
    settings: DriftGate,
    *,
    batches: int = 200,
    stable: Mapping[str, float] | None = None,
    canary: Mapping[str, float] | None = None,
    seed: int = 0,
) -> tuple[Verdict, DriftMonitor]:
    """Ask after every batch of 5 requests of each arm, as samples have them, until the answer is no more `running`."""
    crowd, seen = Crowd(seed), monitor(settings)
    for number in range(batches):
        seen.take(of_arms(crowd.answers(5, **(stable or {})), crowd.answers(5, **(canary or {}))), 10)  # type: ignore[arg-type]
        verdict = seen.verdict(deadline_passed=number == batches - 1)
        if verdict.outcome is not GateOutcome.RUNNING:
            break
    return verdict, seen


def test_a_healthy_canary_passes_with_its_bounds() -> None:
    verdict, _ = run(DriftGate())
    assert verdict.outcome is GateOutcome.PASS
    assert "the arms are alike in all 5 features; the least sure: " in verdict.reason
    for feature in ("prompt_length", "language", "length", "finish_reason", "refusal"):
        assert verdict.numbers[f"{feature}_psi_at_most"] <= 0.2 < verdict.numbers[f"{feature}_psi_at_most"] + 0.2


@pytest.mark.parametrize(
    ("change", "words"),
    [({"longer": 2.0}, "answer length"), ({"longer": 0.4}, "answer length"), ({"declined": 0.4}, "refusals"),
     ({"limit": 30}, "finish reason")],
)  # fmt: skip
def test_a_canary_that_answers_otherwise_fails_and_is_told_why(change: Mapping[str, float], words: str) -> None:
    verdict, _ = run(DriftGate(), canary=change)
    assert verdict.outcome is GateOutcome.FAIL
    assert verdict.reason.startswith(f"the canary answers differently: {words} PSI ")
    assert " is allowed, after " in verdict.reason


def test_arms_that_are_asked_different_things_are_not_compared_whatever_they_answer() -> None:
    verdict, _ = run(DriftGate(), canary={"german": 0.8, "longer": 2.0})
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason.startswith("the arms are asked different things, so no comparison of them is fair: prompt la")


@pytest.mark.long
def test_common_drift_and_a_growing_share_are_no_difference_between_arms() -> None:
    settings = DriftGate(features={Feature.LENGTH: 0.2})
    for seed in range(20):
        crowd, seen = Crowd(seed), monitor(settings)
        for canary, longer in ((5, 1.0), (25, 2.0), (50, 4.0)):
            for _ in range(40):
                seen.take(of_arms(*(crowd.answers(n, longer=longer) for n in (100 - canary, canary))), 10)
        assert seen.verdict(deadline_passed=True).outcome is GateOutcome.PASS


def alarms(shares: Sequence[float], expected: Sequence[float], *, deliveries: int, alpha: float) -> tuple[int, int]:
    """How many of so many deliveries of 300 looks each ever fail, and how many ever pass."""
    rng = np.random.default_rng(17)
    failed = passed = 0
    for _ in range(deliveries):
        seen, outcomes = monitor(FINISH_ONLY, alpha=alpha), set()
        stable, canary = rng.multinomial(38, expected, 300), rng.multinomial(6, shares, 300)
        for those, these in zip(stable, canary, strict=True):
            before = seen.comparisons[0].look
            seen.take(of_arms(ended(*those), ended(*these)), 10)
            # Whatever was counted since the last look changes no verdict.
            if seen.comparisons[0].look is not before:
                outcomes.add(seen.verdict(deadline_passed=False).outcome)
        failed += GateOutcome.FAIL in outcomes
        passed += GateOutcome.PASS in outcomes
    return failed, passed


@pytest.mark.long
def test_300_looks_raise_no_more_false_alarms_than_the_budget_and_accept_no_more_drift() -> None:
    # A PSI of just 0.2, where a false alarm is likeliest; at 5 % of 100 deliveries 5 would be, and 12 are 3 sigma.
    drifted, expected = (0.3 + 0.1946, 0.5 - 0.1946, 0.2), (0.3, 0.5, 0.2)
    assert psi(np.array(drifted), np.array(expected)) == pytest.approx(0.2, abs=0.01)
    failed, passed = alarms(drifted, expected, deliveries=100, alpha=0.05)
    assert failed <= 11
    assert passed <= 11


def test_300_looks_at_no_drift_at_all_never_fail() -> None:
    failed, passed = alarms((0.3, 0.5, 0.2), (0.3, 0.5, 0.2), deliveries=30, alpha=0.05)
    assert (failed, passed) == (0, 30)


def test_nothing_in_either_arm_ever_passes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        arm = ended(*rng.integers(0, 200, 3))
        for batch in (of_arms(arm, ()), of_arms((), arm), of_arms((), ())):
            seen = monitor(FINISH_ONLY, *[batch] * int(rng.integers(0, 4)))
            for late in (False, True):
                verdict = seen.verdict(deadline_passed=late)
                assert verdict.outcome is (GateOutcome.INCONCLUSIVE if late else GateOutcome.RUNNING)


def test_a_feature_that_nobody_measures_keeps_the_gate_from_passing() -> None:
    seen = monitor(
        DriftGate(features={Feature.LENGTH: 0.2, Feature.FINISH_REASON: 0.2}),
        of_arms(ended(100, 400, 0), ended(100, 400, 0)),
    )
    verdict = seen.verdict(deadline_passed=True)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == "answer length is known of 0 canary and 0 stable requests; at least 100 are needed"


def test_next_to_the_verdict_stands_how_both_arms_answer() -> None:
    batch = of_arms(Crowd(1).answers(400), Crowd(2).answers(200, declined=0.5, longer=2.0))
    verdict = monitor(DriftGate(), batch).verdict(deadline_passed=False)
    assert verdict.auxiliary["canary_refusal_share"] == pytest.approx(0.5, abs=0.1)
    assert verdict.auxiliary["stable_refusal_share"] == pytest.approx(0.03, abs=0.03)
    ended = [f"canary_finish_reason_{name}_share" for name in ("length", "stop", "other")]
    assert sum(verdict.auxiliary[name] for name in ended) == pytest.approx(1)
    assert verdict.numbers["length_psi"] > verdict.numbers["length_psi_by_chance"] > 0


def pairs(crowd: Crowd, count: int, *, declined: float = 0.0) -> Batch:
    """The same requests to both arms, which answer alike but for a share that the canary declines."""
    stable = crowd.answers(count)
    worse = crowd.rng.random(count) < declined
    canary = [
        each.model_copy(update={"refusal": True}) if bad else each for each, bad in zip(stable, worse, strict=True)
    ]
    return Batch(
        time=1,
        source="samples",
        pairs=tuple(PairedAnswer(stable=one, canary=other) for one, other in zip(stable, canary, strict=True)),
    )


@pytest.mark.parametrize(("declined", "outcome"), [(0.0, GateOutcome.PASS), (0.2, GateOutcome.FAIL)])
def test_pairs_are_compared_with_each_other(declined: float, outcome: GateOutcome) -> None:
    seen, crowd = monitor(DriftGate(), paired=True), Crowd(3)
    for _ in range(60):
        seen.take(pairs(crowd, 10, declined=declined), 10)
    assert {each.feature for each in seen.comparisons}.isdisjoint({Feature.PROMPT_LENGTH, Feature.LANGUAGE})
    assert seen.verdict(deadline_passed=True).outcome is outcome


def test_a_pair_without_an_answer_of_the_canary_is_no_pair() -> None:
    (reply,) = Crowd().answers(1)
    seen = monitor(DriftGate(), Batch(time=1, pairs=(PairedAnswer(stable=reply),) * 300), paired=True)
    assert all(each.requests == each.against == 0 for each in seen.comparisons)


def test_bins_are_two_for_each_doubling_and_unknown_names_share_one() -> None:
    assert [TRAITS[Feature.LENGTH].place(value) for value in (0, 1, 2, 3, 4, 5)] == [0, 0, 2, 4, 4, 5]
    assert TRAITS[Feature.LENGTH].place(10**9) == len(EDGES)
    assert [TRAITS[Feature.FINISH_REASON].place(name) for name in ("stop", "tool_calls", "abort")] == [1, 2, 2]


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        ({"tone": 0.1}, "'prompt_length', 'language', 'length', 'finish_reason' or 'refusal'"),
        ({"length": 0}, "greater than 0"),
        ({"language": 0.1}, "none of answers; expected one or more of finish_reason, length, refusal"),
    ],
)
def test_what_is_no_feature_or_none_of_answers_is_refused(features: dict[str, float], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        parse_spec(f"features: {json.dumps(features)}", DriftGate, file="drift.yaml")


@pytest.mark.long
def test_a_plan_is_what_healthy_canaries_need() -> None:
    settings = DriftGate()
    planned = requests_to_pass(tuple(settings.features.items()), 100, 1)
    assert math.isfinite(planned)
    took = [run(settings, seed=seed)[0].numbers["length_requests"] for seed in range(15)]
    assert planned / 1.5 <= float(np.median(took)) <= planned * 1.5


def test_a_plan_says_when_no_number_of_requests_is_enough() -> None:
    settings = DriftGate(features={Feature.LENGTH: 1e-9})
    assert requests_to_pass(tuple(settings.features.items()), 100, 1) == math.inf


def test_the_looks_spend_the_budget_once() -> None:
    assert sum(1 / spending(number) for number in range(1, 100_000)) == pytest.approx(1, abs=1e-4)


def test_asking_more_often_changes_no_look() -> None:
    _, seen = run(DriftGate())
    before = of(seen, Feature.LENGTH).look
    for _ in range(50):
        seen.take(of_arms((), ()), 10)
        seen.verdict(deadline_passed=True)
    assert of(seen, Feature.LENGTH).look == before
