"""A plan is worth what it foretells: forecasts against simulated canaries, judged by the same engine."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from alike import long

from gates.analyses.agreement import AgreementGate
from gates.analyses.burn_rate import BurnRateGate, BurnRateMonitor
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.analyses.quality import QualityGate, quality_forecast
from gates.evidence.batch import Events
from gates.model import GateOutcome
from gates.planning.forecast import forecasts
from gates.sequential_test import AnalysisPlan
from gates.stats.binary import FailureProcess
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess
from gates.stats.times import LatencyProcess, sample_edges
from gates.traffic import Assumptions, Exposure, GateForecast

LOOK = 10
CANARIES = 80
MOST_LOOKS = 1000
NOTHING_ELSE = 1
"""Requests that a gate asks for besides its evidence."""
Feed = Callable[[], None]


def plan(terms: AnalysisPlan, exposure: Exposure, assumed: Assumptions | None = None) -> GateForecast:
    (found,) = forecasts(terms, exposure, assumed)
    return found


def median_seconds(
    process: LatencyProcess | FailureProcess | PairedTimesProcess | PairedScoresProcess,
    feed: Callable[[], None],
    *,
    log_fine: float = math.inf,
    log_worse: float = math.inf,
) -> float:
    """When half of all simulated canaries have got there."""
    reached = np.full(CANARIES, np.inf)
    for look in range(1, MOST_LOOKS):
        feed()
        there = (process.log_fine >= log_fine) | (process.log_worse >= log_worse)
        reached[np.isinf(reached) & there] = look * LOOK
        if np.isfinite(reached).mean() > 0.5:
            break
    return float(np.median(reached))


def about(told: float | None, seen: float) -> None:
    """Within 30 %, or within the look that either is rounded to."""
    assert told is not None
    assert abs(told - seen) <= max(0.3 * seen, LOOK), f"told {told:.0f} s, seen {seen:.0f} s"


@pytest.mark.parametrize(
    ("users", "weight", "margin"), [long(200, 5, 0.2), (20, 5, 0.2), long(20, 50, 0.2), (2, 50, 0.5)]
)
@pytest.mark.parametrize("worse", [False, True])
def test_times_of_users_are_decided_when_the_plan_says(
    users: float, weight: float, margin: float, *, worse: bool
) -> None:
    rng = np.random.default_rng(1)
    gate = LatencyGate(max_increase=margin, min_requests=NOTHING_ELSE)
    terms = AnalysisPlan(latency=gate, rollback=0.001)
    told = plan(terms, Exposure(requests_per_second=users, percent=weight, within_seconds=1800))
    edges = sample_edges()[75:165]
    process = LatencyProcess(
        edges, quantile=gate.quantile, max_increase=margin, tolerance=gate.tolerance, leading=(CANARIES,)
    )
    per_look = users * weight / 100 * LOOK, users * (1 - weight / 100) * LOOK

    def counts(mean: float, slower: float) -> np.ndarray:
        out = np.zeros((CANARIES, len(edges) + 1))
        for lane, count in enumerate(rng.poisson(mean, CANARIES)):
            samples = 0.2 * (1 + slower) * np.exp(0.5 * rng.standard_normal(count))
            out[lane] = np.bincount(np.searchsorted(edges, samples), minlength=len(edges) + 1)
        return out

    def feed() -> None:
        process.feed(counts(per_look[0], margin * worse), counts(per_look[1], 0)[:, None], LOOK)

    if worse:
        about(told.seconds_to_fail, median_seconds(process, feed, log_worse=math.log(1000)))
    else:
        about(told.seconds_to_pass, median_seconds(process, feed, log_fine=math.log(20)))


@pytest.mark.parametrize(("users", "weight", "margin"), [(200, 5, 0.01), (20, 25, 0.02), (4, 50, 0.1)])
@pytest.mark.parametrize("worse", [False, True])
def test_failures_of_users_are_decided_when_the_plan_says(
    users: float, weight: float, margin: float, *, worse: bool
) -> None:
    rng = np.random.default_rng(2)
    terms = AnalysisPlan(errors=ErrorsGate(max_increase=margin, min_requests=NOTHING_ELSE), rollback=0.001)
    told = plan(terms, Exposure(requests_per_second=users, percent=weight, within_seconds=1800))
    process = FailureProcess(max_increase=margin, leading=(CANARIES,))

    def counts(per_second: float, rate: float) -> np.ndarray:
        means = np.asarray([1 - rate, rate]) * per_second * LOOK
        return rng.poisson(means, (CANARIES, 2)).astype(float)

    def feed() -> None:
        canary = counts(users * weight / 100, 0.005 + margin * worse)
        process.feed(canary, counts(users * (1 - weight / 100), 0.005)[:, None], LOOK)

    if worse:
        # Two thirds of the gate's share are for failures, one third for refusals.
        about(told.seconds_to_fail, median_seconds(process, feed, log_worse=math.log(1500)))
    else:
        about(told.seconds_to_pass, median_seconds(process, feed, log_fine=math.log(20)))


def _later(rng: np.random.Generator, terms: AnalysisPlan, pairs: int, worse: float) -> tuple[PairedTimesProcess, Feed]:
    gate = terms.settings["latency"]
    assert isinstance(gate, LatencyGate)
    process = PairedTimesProcess(max_increase=gate.max_increase, tolerance=gate.tolerance, leading=(CANARIES,))
    noise = Assumptions().pair_spread
    return process, lambda: process.feed(math.log1p(worse) + noise * rng.standard_normal((CANARIES, pairs)), LOOK)


def _scores(
    rng: np.random.Generator, terms: AnalysisPlan, pairs: int, worse: float
) -> tuple[PairedScoresProcess, Feed]:
    gate = terms.settings["judge"]
    assert isinstance(gate, ScoresGate)
    process = PairedScoresProcess(max_drop=gate.max_drop, leading=(CANARIES,))
    noise = Assumptions().score_spread
    return process, lambda: process.feed(np.clip(worse + noise * rng.standard_normal((CANARIES, pairs)), -1, 1), LOOK)


PAIRED = [
    (AnalysisPlan(latency=LatencyGate(max_increase=0.2, min_requests=NOTHING_ELSE)), 0.2, _later),
    (AnalysisPlan(latency=LatencyGate(max_increase=0.5, min_requests=NOTHING_ELSE)), 0.5, _later),
    (AnalysisPlan(judge=ScoresGate(max_drop=0.05, min_pairs=NOTHING_ELSE)), 0.05, _scores),
    (AnalysisPlan(judge=ScoresGate(max_drop=0.1, min_pairs=NOTHING_ELSE)), 0.1, _scores),
]


@pytest.mark.parametrize(("terms", "margin", "simulated"), PAIRED)
@pytest.mark.parametrize("worse", [False, True])
def test_pairs_are_decided_when_the_plan_says(
    terms: AnalysisPlan,
    margin: float,
    simulated: Callable[..., tuple[PairedTimesProcess | PairedScoresProcess, Feed]],
    *,
    worse: bool,
) -> None:
    (gate,) = terms.gates
    terms = terms.model_copy(update={"sources": {gate: ("probe",)}})
    told = plan(terms, Exposure(pairs_per_second=1, within_seconds=1800))
    process, feed = simulated(np.random.default_rng(3), terms, LOOK, margin * worse)
    if worse:
        about(told.seconds_to_fail, median_seconds(process, feed, log_worse=math.log(100)))
    else:
        about(told.seconds_to_pass, median_seconds(process, feed, log_fine=math.log(20)))


def test_no_burn_is_shown_when_the_plan_says() -> None:
    rng = np.random.default_rng(4)
    gate = BurnRateGate(objective=0.99)
    told = plan(
        AnalysisPlan(burn_rate=gate, rollback=0.001), Exposure(requests_per_second=40, percent=10, within_seconds=1800)
    )
    reached = []
    for _ in range(40):
        burn = BurnRateMonitor(gate, rollback=0.001)
        for look in range(1, MOST_LOOKS):
            total = int(rng.poisson(40))
            burn.look(look * LOOK, LOOK, Events(total=total, bad=int(rng.binomial(total, 0.005))))
            if burn.verdict().outcome is GateOutcome.PASS:
                reached.append(look * LOOK)
                break
    about(told.seconds_to_pass, float(np.median(reached)))


def test_the_smallest_regression_in_time_is_the_one_that_takes_all_of_the_time() -> None:
    terms = AnalysisPlan(latency=LatencyGate(min_requests=NOTHING_ELSE), rollback=0.001)
    exposure = Exposure(requests_per_second=20, percent=5, within_seconds=1200)
    smallest = plan(terms, exposure).smallest_regression_share
    assert smallest is not None and 0.05 < smallest < 0.2
    wider = AnalysisPlan(latency=LatencyGate(max_increase=smallest, min_requests=NOTHING_ELSE), rollback=0.001)
    caught = plan(wider, exposure).seconds_to_fail
    assert caught is not None and abs(caught - 1200) < 0.25 * 1200


@pytest.mark.parametrize("gate", ["latency", "errors"])
def test_more_of_anything_never_takes_longer(gate: str) -> None:
    settings = {"latency": LatencyGate(), "errors": ErrorsGate(max_increase=0.01)}[gate]
    terms = AnalysisPlan.model_validate({gate: settings})

    def seconds(users: float, percent: float) -> float:
        told = plan(terms, Exposure(requests_per_second=users, percent=percent, within_seconds=600)).seconds_to_pass
        return told or math.inf

    rates = [seconds(users, 10) for users in (1, 4, 16, 64, 256)]
    weights = [seconds(20, percent) for percent in (2, 5, 10, 25, 50)]
    assert rates == sorted(rates, reverse=True)
    assert weights == sorted(weights, reverse=True)


def test_several_pods_temper_the_evidence_and_the_plan_knows() -> None:
    terms, exposure = (
        AnalysisPlan(latency=LatencyGate()),
        Exposure(requests_per_second=50, percent=10, within_seconds=1800),
    )
    one, many = (plan(terms, exposure, Assumptions(stable_pods=pods)).canary_requests_to_pass or 0 for pods in (1, 10))
    assert many > 1.3 * one
    calm = terms.model_copy(update={"temper": False})
    assert plan(calm, exposure, Assumptions(stable_pods=10)).canary_requests_to_pass == one


def test_a_pass_waits_for_the_sample_that_the_gate_asks_for() -> None:
    terms = AnalysisPlan(latency=LatencyGate(max_increase=1.0, min_requests=500))
    told = plan(terms, Exposure(requests_per_second=100, percent=10, within_seconds=600))
    assert (told.canary_requests_to_pass, told.seconds_to_pass) == (500, 50)


def test_agreement_waits_for_likeness_and_for_proof_that_answers_arrive() -> None:
    def pairs(**settings: float) -> int:
        terms = AnalysisPlan(agreement=AgreementGate.model_validate({"min_pairs": 1, **settings}))
        return plan(terms, Exposure(pairs_per_second=1, within_seconds=600)).canary_requests_to_pass or 0

    easy = pairs(min_similarity=0.3, min_coverage=0.5)
    assert pairs(min_similarity=0.3, min_coverage=0.95) > easy
    assert pairs(min_similarity=0.75, min_coverage=0.5) > easy


def test_who_gives_no_traffic_is_told_requests_and_no_times() -> None:
    told = plan(AnalysisPlan(errors=ErrorsGate()), Exposure(percent=10, within_seconds=60))
    assert told.reachable and told.canary_requests_to_pass
    assert told.seconds_to_pass is told.seconds_to_fail is told.smallest_regression_share is None


@pytest.mark.parametrize(
    ("prompts", "smallest"),
    # A tenth may be lost: of 12 prompts one, of 100 ten.
    [(8, 1 / 8), (12, 2 / 12), (100, 11 / 100)],
)
def test_a_golden_set_says_what_it_could_prove(prompts: int, smallest: float) -> None:
    told = quality_forecast(QualityGate(max_drop=0.1), prompts=prompts)
    assert (told.canary_requests_to_fail, told.smallest_regression_share) == (10, smallest)
    assert told.reachable == (prompts >= 10)


@pytest.mark.parametrize(
    ("terms", "users", "changes"),
    [
        (AnalysisPlan(latency=LatencyGate()), 8, {"within", "percent"}),
        (AnalysisPlan(judge=ScoresGate(max_drop=0.05)), 8, {"within", "pairs_per_second"}),
        (AnalysisPlan(burn_rate=BurnRateGate(objective=0.99, min_events=1000)), 8, {"within", "percent"}),
        # Half of them would be too few still.
        (AnalysisPlan(errors=ErrorsGate(max_increase=0.02)), 0.2, {"within"}),
        (AnalysisPlan(errors=ErrorsGate(max_increase=0.02)), 200, set[str]()),
    ],
)
def test_what_does_not_reach_a_verdict_is_told_every_change_that_would(
    terms: AnalysisPlan, users: float, changes: set[str]
) -> None:
    exposure = Exposure(requests_per_second=users, percent=5, pairs_per_second=0.1, within_seconds=500)
    told = plan(terms, exposure)
    assert (told.reachable, set(told.proposals)) == (not changes, changes)
    fields = {"within": "within_seconds"}
    for change, value in told.proposals.items():
        seconds = plan(terms, exposure.model_copy(update={fields.get(change, change): value})).seconds_to_pass
        assert (seconds is not None and seconds <= 500) or (change == "within" and seconds <= value)


def test_a_judge_who_sees_a_part_of_the_pairs_takes_longer_for_as_many() -> None:
    terms = AnalysisPlan(judge=ScoresGate(max_drop=0.1))
    all_of, some = (plan(terms, Exposure(pairs_per_second=2, judged=part, within_seconds=600)) for part in (1, 0.1))
    assert abs((some.canary_requests_to_pass or 0) - (all_of.canary_requests_to_pass or 0)) <= 3
    assert (some.seconds_to_pass or 0) > 5 * (all_of.seconds_to_pass or 0)
