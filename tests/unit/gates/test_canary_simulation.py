"""The simulation's peers against examples worked by hand, its traffic, and its engine against the shipped judge."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from alike import long
from numpy.typing import NDArray
from scipy import stats

from benchmarks.canary_simulation import kayenta, ours, summary
from benchmarks.canary_simulation.acceptance_oracle import Acceptance, AcceptanceOracle
from benchmarks.canary_simulation.chunks import Place, simulate
from benchmarks.canary_simulation.fixed_horizon import Moments, PooledZ, StratifiedZ
from benchmarks.canary_simulation.minutes import ArmMinute, Minute, MinuteDecider
from benchmarks.canary_simulation.oracle import CRITICAL, Power
from benchmarks.canary_simulation.samples import Arm as SimulatedArm
from benchmarks.canary_simulation.samples import Grid, Look, Samples
from benchmarks.canary_simulation.scenarios import HIGH, MID, Question, cells
from benchmarks.canary_simulation.static_thresholds import ArgoRollouts, Flagger, Limits, canary_alone
from benchmarks.canary_simulation.workloads import HEALTHY, Regression, Traffic, Workload
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, Buckets, PodEvidence
from gates.model import GateOutcome
from gates.sequential_test import AnalysisPlan, SequentialTest, metric_tests

Array = NDArray[np.float64]
FINE, BAD, NOTHING = 0.2, 0.9, np.nan
LIMITS = Limits(errors=0.01, ttft=0.5, ttft_p99=0.5, itl=0.5, judge=0.5)


def arm_minute(ttft: float) -> ArmMinute:
    one = np.ones(1)
    return ArmMinute(errors=0 * one, ttft=ttft * one, itl=0.1 * one, ttft_p99=ttft * one, judge=0.8 * one)


def after(decider: MinuteDecider, values: list[float]) -> tuple[float, float]:
    """First rollback and acceptance of one delivery whose canary has these TTFTs, minute by minute."""
    for minute, value in enumerate(values, start=1):
        last = minute == len(values)
        decider.feed_minute(Minute(60 * minute, last, arm_minute(value), arm_minute(FINE), arm_minute(FINE)))
    return float(decider.rollback_seconds[0]), float(decider.accept_seconds[0])


NEVER = float("inf")


@pytest.mark.parametrize(
    ("limit", "values", "expected"),
    [
        (0, [FINE, FINE, FINE], (NEVER, 180)),
        (0, [FINE, BAD, FINE], (120, NEVER)),
        (3, [BAD, FINE, BAD, BAD, FINE], (NEVER, 300)),
        (3, [BAD, FINE, BAD, BAD, FINE, BAD], (360, NEVER)),
        (3, [NOTHING] * 4 + [FINE] + [NOTHING] * 4, (NEVER, 540)),
        (3, [NOTHING] * 5, (300, NEVER)),
    ],
)
def test_argo_rollouts_counts_failures_and_errors_in_a_row(
    limit: int, values: list[float], expected: tuple[float, float]
) -> None:
    assert after(ArgoRollouts("", 1, canary_alone(LIMITS), limit), values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([BAD, FINE, FINE, FINE], (NEVER, 240)),
        ([BAD, FINE, NOTHING, FINE, FINE], (240, NEVER)),
        ([FINE, FINE, BAD, BAD], (300, NEVER)),
    ],
)
def test_flagger_rolls_back_at_the_tick_after_its_threshold(values: list[float], expected: tuple[float, float]) -> None:
    assert after(Flagger("", 1, canary_alone(LIMITS), 2), values) == expected


def test_kayentas_statistic_is_scipys_rank_sum_test() -> None:
    rng = np.random.default_rng(3)
    control, experiment = rng.integers(0, 20, 30).astype(float), rng.integers(3, 24, 25).astype(float)
    theirs = stats.mannwhitneyu(experiment, control, method="asymptotic").pvalue
    assert 2 * stats.norm.sf(kayenta._z(control, experiment)) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("control", "experiment", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], kayenta.Classification.PASS),
        ([1, 2], [np.nan, np.nan], kayenta.Classification.NODATA),
        ([1, 2], [3, 4], kayenta.Classification.HIGH),
        ([3, 4], [1, 2], kayenta.Classification.PASS),
        (range(20), range(20, 40), kayenta.Classification.HIGH),
    ],
)
def test_kayenta_classifies(control: list[float], experiment: list[float], expected: kayenta.Classification) -> None:
    assert kayenta.classify(np.asarray(control, dtype=float), np.asarray(experiment, dtype=float)) is expected


def test_kayenta_gives_a_group_without_data_full_marks() -> None:
    nothing, fine, high = kayenta.Classification.NODATA, kayenta.Classification.PASS, kayenta.Classification.HIGH
    assert kayenta.score([nothing, nothing]) == 100
    assert kayenta.score([fine, fine, fine, high]) == 75


@pytest.mark.long
def test_the_quick_test_before_kayenta_drops_nothing_that_is_high() -> None:
    rng = np.random.default_rng(5)
    for points in (2, 3, 5, 12, 30):
        control, experiment = rng.integers(0, 9, (200, points)) / 4, rng.integers(0, 12, (200, points)) / 4
        likely = kayenta.may_be_high(control, experiment)
        for row in np.flatnonzero(~likely):
            assert kayenta.classify(control[row], experiment[row]) is not kayenta.Classification.HIGH


def test_the_z_of_one_look_has_the_variance_of_all_relabellings() -> None:
    values, drawn = np.asarray([0.0, 1.0, 1.0, 3.0, 5.0]), 2
    excess = []
    for canary in combinations(range(5), drawn):
        stable = np.delete(values, canary)
        excess.append(2 * 3 / 5 * (values[list(canary)].mean() - stable.mean()))
    z = StratifiedZ(1)
    z.feed(moments(values[:2], values[2:]))
    assert float(z.z[0]) == pytest.approx(excess[0] / np.std(excess))


def moments(canary: Array, stable: Array) -> Moments:
    return Moments(*(tuple(np.asarray([(arm**power).sum()]) for power in (0, 1, 2)) for arm in (canary, stable)))


def test_pooled_totals_see_a_regression_where_only_load_and_share_changed_together() -> None:
    stratified, pooled = StratifiedZ(1), PooledZ(1)
    rng = np.random.default_rng(2)
    for share, load in ((0.05, 0.0), (0.5, 1.0)):
        canary, stable = (rng.normal(load, 1, int(4000 * each)) for each in (share, 1 - share))
        for z in (stratified, pooled):
            z.feed(moments(canary, stable))
    assert abs(float(stratified.z[0])) < 2.6
    assert float(pooled.z[0]) > 10


def test_the_oracle_takes_the_first_look_with_80_percent() -> None:
    half = Power(deliveries=10, seen=(1, 6, 8, 10), z_sum=(5.0, 20.0, 35.0, 50.0))
    assert half.seconds(0) == 30
    assert half.plus(half) == Power(deliveries=20, seen=(2, 12, 16, 20), z_sum=(10.0, 40.0, 70.0, 100.0))
    wanted = CRITICAL + stats.norm.ppf(0.8)
    beyond = Power(deliveries=1, seen=(0, 0), z_sum=(0.3 * wanted, 0.5 * wanted))
    assert beyond.seconds(0) == pytest.approx(80)


def test_the_oracle_of_acceptance_takes_the_first_look_with_80_percent() -> None:
    half = Acceptance(deliveries=10, accepted=(1, 6, 8, 10))
    assert half.seconds == 30
    assert half.plus(half) == Acceptance(deliveries=20, accepted=(2, 12, 16, 20))
    assert np.isinf(Acceptance(deliveries=10, accepted=(1, 2, 7)).seconds)


@pytest.mark.parametrize(
    ("metric", "regression"),
    [
        long("errors", Regression(error_added=0.01)),
        ("ttft", Regression(ttft_factor=1.2)),
        long("judge", Regression(judge_drop=0.1)),
    ],
)
def test_the_oracle_of_acceptance_keeps_its_own_chance_of_an_error(metric: str, regression: Regression) -> None:
    """Of versions at the margin it accepts 5 % at any one look, and nearly all good ones."""
    traffic, deliveries = replace(MID, looks=120, warm_up_looks=0, stable_pods=1), 400
    accepted = {}
    for name, canary in (("at the margin", regression), ("good", HEALTHY)):
        oracle = AcceptanceOracle(traffic, deliveries)
        for look in Workload(traffic, canary, deliveries, seed=8).looks():
            oracle.feed(look)
        accepted[name] = oracle.acceptance()[metric].accepted[-1]
    assert accepted["at the margin"] <= stats.binom(deliveries, 0.05).ppf(0.999)
    assert accepted["good"] > 0.85 * deliveries


def test_bounds_are_clopper_and_pearsons() -> None:
    assert summary.upper_bound(0, 1000) == pytest.approx(1 - 0.05 ** (1 / 1000))
    assert stats.binom(1000, summary.upper_bound(8, 1000)).cdf(8) == pytest.approx(0.05)
    assert summary.upper_bound(7, 7) == 1


def all_ttft(regression: Regression) -> Array:
    """Sorted TTFTs of the canary, without drift."""
    traffic = Traffic(rate=200, looks=12, shares=(0.5,), warm_up_looks=0)
    looks = Workload(traffic, regression, 5, seed=4).looks()
    return np.sort(
        np.concatenate([look.canary.ttft.log_seconds - look.log_load[look.canary.ttft.delivery] for look in looks])
    )


@pytest.mark.parametrize(
    ("regression", "median", "p95"),
    [(Regression(ttft_factor=1.2), 1.2, 1.2), (Regression(tail_factor=1.2), 1.0, 1.2)],
)
def test_regressions_move_the_quantiles_they_name(regression: Regression, median: float, p95: float) -> None:
    before, worse = all_ttft(HEALTHY), all_ttft(regression)
    for share, factor in ((0.5, median), (0.95, p95)):
        assert np.exp(np.quantile(worse, share) - np.quantile(before, share)) == pytest.approx(factor, rel=0.04)


@pytest.mark.long
def test_the_same_place_gives_the_same_chunk_and_another_number_another_one() -> None:
    cell = next(each for each in cells() if each.name == "20/s, 5 %")
    short = replace(cell, traffic=cell.traffic.lasting(6))
    place = Place(seed=1, question=Question.HEALTHY, name=cell.name, number=0, deliveries=4)
    first, again = (simulate(short, place).deciders for _ in range(2))
    assert first == again
    one, other = (
        next(Workload(MID, HEALTHY, 4, place.model_copy(update={"number": number}).random_seed).looks())
        for number in (0, 1)
    )
    assert not np.array_equal(one.stable.requests, other.stable.requests)


BOTH = AnalysisPlan(latency=LatencyGate(), judge=ScoresGate(max_drop=0.1), sources={"judge": ("users",)})
ERRORS = AnalysisPlan(errors=ErrorsGate(max_increase=0.01))


def batch_of(look: Look, time: float) -> Batch:
    """The only delivery of a look as an adapter would bring it: buckets on the simulation's own grid."""
    sides = ((ArmName.CANARY, look.canary, look.canary_scores), (ArmName.STABLE, look.stable, look.stable_scores))
    pods = [
        evidence(arm, simulated, pod, tuple(scores[0]) if pod == 0 else ())
        for arm, simulated, scores in sides
        for pod in range(simulated.requests.shape[1])
        if simulated.requests.sum()
    ]
    return Batch(time=time, arms=tuple(pods))


def evidence(arm: ArmName, simulated: SimulatedArm, pod: int, scores: tuple[float, ...]) -> PodEvidence:
    cached, whole = (int(each) * (pod == 0) for each in simulated.cached[0])
    return PodEvidence(
        cached_tokens=cached,
        prompt_tokens=whole,
        arm=arm,
        pod=str(pod),
        requests=int(simulated.requests[0, pod]),
        errors=int(simulated.errors[0, pod]),
        ttft=buckets(simulated.ttft, ours.TTFT_GRID, pod),
        scores=scores,
    )


def buckets(samples: Samples, grid: Grid, pod: int) -> Buckets:
    counts = samples.pod_counts(grid)[0, pod].astype(int)
    return Buckets(edges=tuple(np.exp(grid.log_edges)), counts=tuple(counts.tolist()))


@pytest.mark.parametrize(
    ("terms", "metrics", "cached"),
    [(BOTH, ("ttft", "judge"), 0.0), (ERRORS, ("errors",), 0.0), (BOTH, ("ttft", "judge"), 0.2)],
    ids=["latency and judge", "errors", "a cold cache"],
)
@pytest.mark.parametrize(
    ("regression", "outcome"),
    [(HEALTHY, GateOutcome.PASS), (Regression(ttft_factor=1.5, error_factor=6, judge_drop=0.2), GateOutcome.FAIL)],
    ids=["healthy", "worse"],
)
def test_the_simulated_gate_says_what_a_trial_says(
    terms: AnalysisPlan, metrics: tuple[str, ...], cached: float, regression: Regression, outcome: GateOutcome
) -> None:
    """Look by look the same evidence from the same counts, hence the same verdict at the same look."""
    engines = {name: each for name, each in ours.engines(1, ours.Margins(), temper=True).items() if name in metrics}
    gate = ours.Gate("", 1, engines, max_colder=LatencyGate().max_colder if cached else None)
    trial, outcomes = SequentialTest(terms), set[GateOutcome]()
    asked = [question for _, question in metric_tests(terms) if question.kind != "refused"]
    trial.take(Batch(time=1000 - 12 * 10))
    for look in Workload(replace(HIGH, looks=60, warm_up_looks=12, cached=cached), regression, 1, seed=6).looks():
        counted, batch = ours.Counted(look), batch_of(look, look.seconds + 1000)
        gate.feed_counted(counted, look.seconds) if look.share else gate.learn(counted)
        trial.take(batch)
        for question, name in zip(asked, metrics, strict=True):
            question.take(batch, 10)
            said = (question.log_worse, question.log_fine)
            assert said == pytest.approx(
                (float(engines[name].log_worse[0]), float(engines[name].log_fine[0])), abs=1e-6
            )
        outcomes = {verdict.outcome for verdict in trial.verdicts()}
        if terms is BOTH:
            assert (GateOutcome.FAIL in outcomes) == (not gate.undecided[0])
        if GateOutcome.FAIL in outcomes or outcomes == {GateOutcome.PASS}:
            break
        assert np.isinf(gate.accept_seconds[0])
    assert outcome in outcomes
    assert np.isfinite(gate.accept_seconds[0]) == (outcome is GateOutcome.PASS)
