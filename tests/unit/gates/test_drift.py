"""The drift gate: fair questions, like answers, and no alarm by asking often."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from gates.analyses.drift import (
    Comparison,
    DriftGate,
    DriftMonitor,
    OutputsAllowed,
    Reaction,
    requests_to_fail,
    requests_to_pass,
    spending,
)
from gates.analyses.drift_reference import (
    Bins,
    DriftReference,
    Feature,
    Features,
    count_requests,
    freeze,
    freeze_reference,
)
from gates.evidence.batch import Batch, DriftCounts
from gates.model import GateOutcome, NoData, Verdict
from gates.stats.divergence import psi

ALPHA = 0.01
FINISH = (Feature.FINISH_REASON,)


class Crowd:
    """Users and the answers they get, from seeded dice."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def requests(
        self, count: int, *, longer: float = 1.0, german: float = 0.1, declined: float = 0.03, limit: int = 128
    ) -> list[Features]:
        tokens = np.minimum(limit, np.ceil(self.rng.lognormal(3.5, 0.8, count) * longer))
        return [
            {
                Feature.PROMPT_LENGTH: float(characters),
                Feature.LANGUAGE: "de" if is_german else "en",
                Feature.LENGTH: float(length),
                Feature.FINISH_REASON: "length" if length >= limit else "stop",
                Feature.REFUSAL: "true" if is_declined else "false",
            }
            for characters, is_german, length, is_declined in zip(
                self.rng.gamma(2, 100, count).round(), self.rng.random(count) < german, tokens,
                self.rng.random(count) < declined, strict=True,
            )
        ]  # fmt: skip


def bins_of(settings: DriftGate, requests: Sequence[Features]) -> DriftReference | NoData:
    return freeze_reference(settings.thresholds, requests, bins=settings.bins, least=settings.min_requests)


def frozen(settings: DriftGate) -> DriftReference:
    reference = bins_of(settings, Crowd(99).requests(2000))
    assert isinstance(reference, DriftReference)
    return reference


def monitor(
    settings: DriftGate, reference: DriftReference | NoData, *counts: DriftCounts, alpha: float = ALPHA
) -> DriftMonitor:
    """With these counts taken."""
    found = DriftMonitor(settings, reference, rollback=alpha)
    for each in counts:
        found.take(Batch(time=1, drift=each), 10)
    return found


def of(seen: DriftMonitor, name: str) -> Comparison:
    return next(each for each in seen.comparisons if each.name == name)


def run(
    settings: DriftGate,
    *,
    batches: int = 100,
    stable: Mapping[str, float] | None = None,
    canary: Mapping[str, float] | None = None,
    reference: DriftReference | None = None,
    seed: int = 0,
) -> tuple[Verdict, DriftMonitor]:
    """Ask after every batch of 95 stable and 5 canary requests until the answer is no more `running`."""
    crowd, reference = Crowd(seed), reference or frozen(settings)
    seen = monitor(settings, reference)
    for number in range(batches):
        counts = DriftCounts(
            stable=count_requests(reference, crowd.requests(95, **(stable or {}))),  # type: ignore[arg-type]
            canary=count_requests(reference, crowd.requests(5, **(canary or {}))),  # type: ignore[arg-type]
        )
        seen.take(Batch(time=1, drift=counts), 10)
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


def test_a_finish_reason_that_was_never_seen_before_is_drift() -> None:
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(features=FINISH))
    reference = DriftReference(bins={Feature.FINISH_REASON: Bins(names=("stop",), reference=(500, 0))})
    counts = DriftCounts(stable={Feature.FINISH_REASON: (900, 0)}, canary={Feature.FINISH_REASON: (70, 80)})
    assert monitor(settings, reference, counts).verdict(deadline_passed=False).outcome is GateOutcome.FAIL


def test_arms_that_are_asked_different_things_are_not_compared_whatever_they_answer() -> None:
    verdict, _ = run(DriftGate(), canary={"german": 0.8, "longer": 2.0})
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason.startswith("the arms are asked different things, so no comparison of them is fair: prompt la")


@pytest.mark.parametrize(
    ("reaction", "outcome"),
    [(Reaction.WARN, GateOutcome.PASS), (Reaction.HOLD, GateOutcome.INCONCLUSIVE), (Reaction.IGNORE, GateOutcome.PASS)],
)
def test_users_who_ask_other_things_than_before_are_the_worlds_doing(reaction: Reaction, outcome: GateOutcome) -> None:
    moved = {"german": 0.8}
    verdict, _ = run(DriftGate(since_reference=reaction), stable=moved, canary=moved)
    assert verdict.outcome is outcome
    assert ("users ask other things than in the reference window" in verdict.reason) is (reaction != Reaction.IGNORE)


@pytest.mark.long
def test_common_drift_and_a_growing_share_are_no_difference_between_arms() -> None:
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(features=(Feature.LENGTH,)))
    reference = frozen(settings)
    for seed in range(20):
        crowd, seen = Crowd(seed), monitor(settings, reference)
        for canary, longer in ((5, 1.0), (25, 2.0), (50, 4.0)):
            for _ in range(40):
                arms = [count_requests(reference, crowd.requests(n, longer=longer)) for n in (100 - canary, canary)]
                seen.take(Batch(time=1, drift=DriftCounts(stable=arms[0], canary=arms[1])), 10)
        assert seen.verdict(deadline_passed=True).outcome is GateOutcome.PASS


FINISH_ONLY = DriftGate(inputs=None, outputs=OutputsAllowed(psi=0.2, features=FINISH))
THREE = DriftReference(
    bins={Feature.FINISH_REASON: Bins(names=("length", "stop", "tool"), reference=(300, 500, 200, 0))}
)


def looks(seen: DriftMonitor) -> int:
    """How many there have been at finish reasons."""
    look = of(seen, "finish_reason").look
    return look.number if look else 0


def alarms(shares: Sequence[float], expected: Sequence[float], *, deliveries: int, alpha: float) -> tuple[int, int]:
    """How many of so many deliveries of 300 looks each ever fail, and how many ever pass."""
    rng = np.random.default_rng(17)
    failed = passed = 0
    for _ in range(deliveries):
        seen, outcomes = monitor(FINISH_ONLY, THREE, alpha=alpha), set()
        stable, canary = rng.multinomial(38, expected, 300), rng.multinomial(6, shares, 300)
        for those, these in zip(stable, canary, strict=True):
            counts = DriftCounts(
                stable={Feature.FINISH_REASON: (*map(int, those), 0)},
                canary={Feature.FINISH_REASON: (*map(int, these), 0)},
            )
            before = looks(seen)
            seen.take(Batch(time=1, drift=counts), 10)
            # Whatever was counted since the last look changes no verdict.
            if looks(seen) > before:
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


def test_the_looks_spend_the_budget_once() -> None:
    assert sum(1 / spending(number) for number in range(1, 100_000)) == pytest.approx(1, abs=1e-4)


def test_asking_more_often_changes_no_look() -> None:
    _, seen = run(DriftGate())
    before = of(seen, "length").look
    for _ in range(50):
        seen.take(Batch(time=1, drift=DriftCounts()), 10)
        seen.verdict(deadline_passed=True)
    assert of(seen, "length").look == before


def test_nothing_in_either_arm_ever_passes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        counts = tuple(int(count) for count in rng.integers(0, 500, 4))
        arm = {Feature.FINISH_REASON: counts}
        for batch in (DriftCounts(stable=arm), DriftCounts(canary=arm), DriftCounts()):
            seen = monitor(FINISH_ONLY, THREE, *[batch] * int(rng.integers(0, 4)))
            for late in (False, True):
                verdict = seen.verdict(deadline_passed=late)
                assert verdict.outcome is (GateOutcome.INCONCLUSIVE if late else GateOutcome.RUNNING)


def test_too_few_requests_say_how_many_there_are() -> None:
    verdict, _ = run(FINISH_ONLY, batches=3)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == "finish reason is known of 15 canary and 285 stable requests; at least 100 are needed"
    assert verdict.auxiliary["finish_reason_psi_by_chance"] > 0


def test_a_feature_that_nobody_measures_keeps_the_gate_from_passing() -> None:
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(features=(Feature.LENGTH, Feature.ENTROPY)))
    verdict, _ = run(settings)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == "token entropy is known of fewer than 100 requests of the reference"


def test_without_a_reference_there_is_no_answer() -> None:
    reference = bins_of(DriftGate(), Crowd().requests(30))
    assert reference == NoData(reason="the reference has 30 requests; at least 100 are needed")
    seen = monitor(DriftGate(), reference, DriftCounts())
    assert seen.verdict(deadline_passed=False).outcome is GateOutcome.RUNNING
    late = seen.verdict(deadline_passed=True)
    assert (late.outcome, late.numbers, late.auxiliary) == (GateOutcome.INCONCLUSIVE, {}, {})


def test_the_numbers_over_time_know_what_chance_alone_would_show() -> None:
    settings, crowd = DriftGate(), Crowd(3)
    reference = frozen(settings)
    arms = [count_requests(reference, crowd.requests(count)) for count in (600, 300)]
    numbers = monitor(settings, reference, DriftCounts(stable=arms[0], canary=arms[1])).curves()
    assert numbers["length_psi_by_chance"] == pytest.approx(9 * (1 / 300 + 1 / 600))
    assert 0 <= numbers["users_language_psi"] < 0.05
    assert all(math.isfinite(value) for value in numbers.values())


def test_next_to_the_verdict_stands_how_both_arms_answer() -> None:
    settings = DriftGate(outputs=OutputsAllowed(features=(Feature.LENGTH, Feature.FINISH_REASON, Feature.REFUSAL)))
    reference = frozen(settings)
    stable, canary = Crowd(1).requests(400), Crowd(2).requests(200, declined=0.5, longer=2.0)
    counts = DriftCounts(
        stable=count_requests(reference, stable),
        canary=count_requests(reference, canary),
        stable_totals={"length": sum(float(request[Feature.LENGTH]) for request in stable)},
        canary_totals={"length": sum(float(request[Feature.LENGTH]) for request in canary)},
    )
    verdict = monitor(settings, reference, counts).verdict(deadline_passed=False)
    assert verdict.auxiliary["canary_refusal_share"] == pytest.approx(0.5, abs=0.1)
    assert verdict.auxiliary["stable_refusal_share"] == pytest.approx(0.03, abs=0.03)
    assert verdict.auxiliary["canary_mean_length_tokens"] > 1.3 * verdict.auxiliary["stable_mean_length_tokens"] > 30
    ended = [f"canary_finish_reason_{name}_share" for name in ("length", "stop", "other")]
    assert sum(verdict.auxiliary[name] for name in ended) == pytest.approx(1)
    assert verdict.auxiliary["length_kl"] > 0
    assert verdict.auxiliary["length_js"] > 0
    assert verdict.auxiliary["length_kl_by_chance"] == pytest.approx(verdict.numbers["length_psi_by_chance"] / 2)
    assert verdict.numbers["length_psi"] > 0
    assert not verdict.auxiliary.keys() & verdict.numbers.keys()


def test_a_refusal_is_seen_where_the_reference_has_none() -> None:
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(features=(Feature.REFUSAL,)))
    reference = DriftReference(bins={Feature.REFUSAL: Bins(names=("false",), reference=(500, 0))})
    counts = DriftCounts(stable={Feature.REFUSAL: (100, 0)}, canary={Feature.REFUSAL: (30, 10)})
    numbers = monitor(settings, reference, counts).curves()
    assert (numbers["canary_refusal_share"], numbers["stable_refusal_share"]) == (0.25, 0.0)


def test_means_are_of_answers_that_are_counted() -> None:
    reference = DriftReference(bins={Feature.LENGTH: Bins(edges=(10.0,), reference=(50, 50))})
    counts = DriftCounts(
        stable={"length": (2, 0)}, canary={"length": (1, 1)}, stable_totals={"length": 10}, canary_totals={"length": 40}
    )
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(features=(Feature.LENGTH,)))
    numbers = monitor(settings, reference, counts).curves()
    assert (numbers["stable_mean_length_tokens"], numbers["canary_mean_length_tokens"]) == (5, 20)


def test_bins_are_equally_full_and_a_value_that_fills_one_by_itself_gets_one() -> None:
    values = [float(min(number, 128)) for number in range(1, 201)]
    bins = freeze(Feature.LENGTH, values, 10)
    assert bins.reference[bins.place(128.0)] == values.count(128.0)
    assert bins.place(127.0) != bins.place(128.0) != bins.place(129.0)
    assert all(low < high for low, high in pairwise(bins.edges))
    always = freeze(Feature.LENGTH, [128.0] * 500, 10)
    assert len({always.place(value) for value in (5.0, 128.0, 200.0)}) == 3


def test_names_that_the_reference_did_not_have_share_a_bin() -> None:
    bins = freeze(Feature.LANGUAGE, ["en"] * 5 + ["de"] * 3, 10)
    assert (bins.names, bins.reference) == (("de", "en"), (3, 5, 0))
    assert bins.place("fr") == bins.place("zh") == 2


def test_a_spec_names_features_alone_or_with_their_threshold() -> None:
    settings = DriftGate.model_validate({"inputs": {"psi": 0.1}, "outputs": ["length", "entropy", "finish_reason"]})
    assert settings.inputs is not None and settings.outputs is not None
    assert settings.inputs.threshold(Feature.LANGUAGE) == 0.1
    assert settings.outputs.features == (Feature.LENGTH, Feature.ENTROPY, Feature.FINISH_REASON)
    assert [settings.outputs.threshold(feature) for feature in settings.outputs.features] == [0.2, 0.2, 0.1]
    with pytest.raises(ValidationError):
        DriftGate.model_validate({"outputs": ["language"]})


def test_a_gate_that_looks_at_nothing_is_refused() -> None:
    settings = DriftGate(inputs=None, outputs=None)
    assert [one.found for one in settings.contradictions()] == ["neither inputs nor outputs"]


@pytest.mark.long
def test_a_plan_is_what_healthy_canaries_need() -> None:
    settings = DriftGate()
    planned = requests_to_pass(settings, stable_per_canary=19)
    assert math.isfinite(planned)
    took = [run(settings, seed=seed)[0].numbers["length_requests"] for seed in range(15)]
    assert planned / 1.5 <= float(np.median(took)) <= planned * 1.5


@pytest.mark.long
def test_a_plan_is_what_drifting_canaries_need() -> None:
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(features=(Feature.REFUSAL,)))
    drift = 0.2
    times = psi(np.array([1 - drift, drift]), np.array([0.97, 0.03])) / 0.1
    planned = requests_to_fail(settings, times=times, stable_per_canary=19, alpha=ALPHA)
    assert math.isfinite(planned)
    took = [run(settings, canary={"declined": drift}, seed=seed, batches=400)[1] for seed in range(15)]
    assert planned / 2 <= float(np.median([of(one, "refusal").requests for one in took])) <= planned * 2


def test_a_plan_says_when_no_number_of_requests_is_enough() -> None:
    settings = DriftGate(inputs=None, outputs=OutputsAllowed(psi=1e-9))
    assert requests_to_pass(settings, stable_per_canary=1) == math.inf
    assert requests_to_fail(DriftGate(), times=1.0, stable_per_canary=1, alpha=ALPHA) == math.inf
