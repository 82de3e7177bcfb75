"""Means of which only sums and counts are known: bounds by simulation, sentences, plans, a delivery."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from fakes.delivery.store import MemoryStore
from fakes.metrics.asked import decided, plan_of, refusal_of

from gates.analyses.mean import MeanGate, MeanTest, assessing
from gates.analyses.queries import WithQueries
from gates.evidence.batch import ArmName, Batch, PodTotal
from gates.model import ArmKey, GateOutcome, Verdict
from gates.planning.forecast import forecasts
from gates.sequential_test import AnalysisPlan
from gates.stats.means import MeanProcess, relative
from gates.traffic import Exposure
from registry.versions import MlflowRegistry
from tidegate.testing import FakeEvidence

SUM, COUNT = 'tokens_sum{version="{{.version}}"}', 'tokens_count{version="{{.version}}"}'
TOKENS: dict[str, Any] = {"kind": "mean", "sum": SUM, "count": COUNT, "unit": "tokens"}


def highest(
    runs: int,
    *,
    looks: int,
    ratio: float,
    per_window: tuple[int, int] = (20, 180),
    heavy: bool = False,
    tolerated: float = 1.0,
    margin: float = 1.2,
) -> tuple[np.ndarray, np.ndarray]:
    """Of so many deliveries, the highest evidence that the canary is worse, and that it is within; load wanders."""
    rng = np.random.default_rng(3)
    process = MeanProcess(tolerated=tolerated, margin=margin, leading=(runs,))
    worse, fine = np.zeros(runs), np.zeros(runs)
    for look in range(looks):
        both = []
        for mean, expected in ((ratio, per_window[0]), (1.0, per_window[1])):
            size = (runs, max(int(rng.poisson(expected)), 1))
            values = rng.lognormal(-0.5, 1.0, size) if heavy else rng.gamma(2.0, 0.5, size)
            sums = values.sum(axis=-1) * mean * (1 + 0.5 * np.sin(look / 15))
            both.append(np.stack([sums, np.full(runs, float(size[1]))], axis=-1)[:, None, :])
        process.feed(both[0], both[1], 10.0)
        worse, fine = np.maximum(worse, process.log_worse), np.maximum(fine, process.log_fine)
    return np.exp(worse), np.exp(fine)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize(("ratio", "tolerated"), [(1.0, 1.0), (1.05, 1.05), (0.8, 0.8)])
def test_chance_alone_is_seldom_evidence_of_a_worse_mean(heavy: bool, ratio: float, tolerated: float) -> None:
    margin = 1.2 if tolerated >= 1 else 0.6
    worse, _ = highest(400, looks=60, ratio=ratio, tolerated=tolerated, margin=margin, heavy=heavy)
    # At most one of five is expected to reach 5: 80 of 400, and 104 or more once in 700 times.
    assert (worse >= 5).sum() < 104


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("margin", [1.2, 0.8])
def test_a_mean_at_the_margin_seldom_passes(heavy: bool, margin: float) -> None:
    _, fine = highest(400, looks=60, ratio=margin, margin=margin, heavy=heavy)
    # 20 of 400 are expected at most, and 35 or more once in a thousand times.
    assert (fine >= 20).sum() < 35


@pytest.mark.parametrize("higher", [True, False])
def test_a_worse_mean_is_found_and_a_healthy_one_passes(higher: bool) -> None:
    ratio, tolerated, margin = (1.5, 1.05, 1.2) if higher else (0.6, 0.95, 0.8)
    worse, _ = highest(50, looks=120, ratio=ratio, tolerated=tolerated, margin=margin)
    _, fine = highest(50, looks=200, ratio=1.0, tolerated=tolerated, margin=margin)
    assert (worse >= 400).all() and (fine >= 20).mean() > 0.9


@pytest.mark.long
def test_however_values_are_shared_out_the_bet_is_fair() -> None:
    rng = np.random.default_rng(9)
    values, drawn = rng.pareto(1.1, 40), 7
    shares = np.array([rng.permutation(values)[:drawn].sum() for _ in range(200_000)])
    x = relative(shares, np.float64(drawn), values.sum() - shares, np.float64(len(values) - drawn))
    assert x.mean() == pytest.approx(1, abs=0.02) and x.min() >= 0
    assert relative(np.float64(0), np.float64(3), np.float64(0), np.float64(9)) == 1


def plan(**settings: object) -> AnalysisPlan:
    return plan_of({"tokens": {**TOKENS, **settings}})


def judged(of_canary: float, of_stable: float, *, looks: int = 200, **settings: object) -> Verdict:
    """The first verdict that decides, or the last; values are spread as widely as their mean."""
    rng, arms = np.random.default_rng(5), [(ArmName.STABLE, "a", 90, of_stable), (ArmName.CANARY, "b", 20, of_canary)]

    def pods() -> tuple[PodTotal, ...]:
        return tuple(PodTotal(arm=a, pod=pod, count=n, total=rng.gamma(n) * mean) for a, pod, n, mean in arms)

    batches = (Batch(time=10.0 * look, source="proxy", totals={"tokens": pods()}) for look in range(1, looks + 1))
    return decided(plan(**settings), batches)


def test_verdicts_say_both_means() -> None:
    fine, bad = judged(200, 200), judged(400, 200)
    assert (fine.outcome, bad.outcome) == (GateOutcome.PASS, GateOutcome.FAIL)
    assert fine.reason.startswith("canary's mean is ") and " tokens against " in fine.reason
    assert "allowed +20 %): evidence " in bad.reason and "that it is higher than tolerated" in bad.reason
    assert bad.numbers["canary_mean_tokens"] > 1.5 * bad.numbers["stable_mean_tokens"]
    low = judged(2.0, 4.0, worse="lower")
    assert low.outcome is GateOutcome.FAIL and "allowed -20 %): evidence " in low.reason
    assert judged(4.0, 2.0, worse="lower").outcome is GateOutcome.PASS


def test_zeros_decide_nothing() -> None:
    zeros = judged(0, 0, looks=50)
    assert zeros.outcome is GateOutcome.INCONCLUSIVE and "of nothing no share is told" in zeros.reason


def test_few_observations_wait_for_more() -> None:
    test = MeanTest(MeanGate.model_validate({name: each for name, each in TOKENS.items() if name != "kind"}), "tokens")
    both = [PodTotal(arm=ArmName.STABLE, count=9, total=9), PodTotal(arm=ArmName.CANARY, count=2, total=8)]
    for look in range(1, 3):
        test.take(Batch(time=10.0 * look, source="proxy", totals={"tokens": tuple(both)}), 10)
        assert test.log_worse == pytest.approx(0, abs=1e-12)
    test.take(Batch(time=30, source="proxy", totals={"tokens": tuple(both)}), 10)
    assert test.log_worse > 0 and test.seen == 6


def test_a_plan_knows_how_wide_values_spread() -> None:
    def needs(**settings: object) -> int | None:
        exposure = Exposure(requests_per_second=20, percent=10, within_seconds=36000)
        (told,) = forecasts(plan(**settings), exposure)
        assert (told.gate, told.scale) == ("tokens", "change")
        return told.canary_requests_to_pass

    narrow, wide = needs(spread=0.3), needs(spread=2.0)
    assert narrow and wide and narrow < wide < 40 * narrow


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"sum": ""}, "a label that tells the arms apart"),
        ({"tolerance": "20%"}, "found 20%; expected less than max_change, 20%"),
        ({"worse": "lower", "max_change": "120%"}, "found 120%; expected less than 100%, where lower is worse"),
    ],
)
def test_what_cannot_be_compared_is_refused(changed: dict[str, Any], problem: str) -> None:
    assert problem in refusal_of({**TOKENS, **changed})


TRACES: dict[str, Any] = {"name": "helpful", "experiment": "chat", "tags": {"served": "{{.region}}/{{.version}}"}}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"assessments": TRACES}, "gates.mine.sum: found a counter besides assessments; expected one of both"),
        ({"assessments": TRACES, "preset": "vllm-output-tokens", "sum": None, "count": None}, "a counter besides"),
        (
            {"assessments": TRACES | {"tags": {"a": "b"}}, "sum": None, "count": None},
            "tags that both arms' traces have",
        ),
        ({"assessments": TRACES | {"tags": {"a": "{{.pod}}"}}, "sum": None, "count": None}, "only these open places"),
        ({"assessments": TRACES | {"experiment": "a'b"}, "sum": None, "count": None}, "experiment"),
    ],
)
def test_assessments_replace_counters_and_tell_the_arms_apart(settings: dict[str, Any], told: str) -> None:
    assert told in refusal_of({**TOKENS, **settings})


def test_an_assessment_counts_in_the_window_in_which_it_was_made() -> None:
    store = MemoryStore()
    for second in range(60):
        at = 1_000_000 + 1000 * second
        store.traces.append(("chat", {"served": "eu/1"}, at, "helpful", at + 2000, second % 2 == 0))
        store.traces.append(("chat", {"served": "eu/2"}, at, "helpful", at + 2000, "unknown"))
    registry = MlflowRegistry(store)
    gate = MeanGate.model_validate({"assessments": TRACES, "worse": "lower"})
    source = WithQueries(FakeEvidence(), registry.assessed, assessing({"helpful": gate}))
    arms = [ArmKey(region="eu", role=role, version=version) for role, version in (("stable", "1"), ("canary", "2"))]
    seen = [
        source.batch(*arms, *(datetime.fromtimestamp(at, UTC) for at in (since, since + 10)))
        for since in range(1000, 1070, 10)
    ]
    assert sum(total.count for batch in seen for total in batch.totals["helpful"]) == 60
    assert sum(total.total for batch in seen for total in batch.totals["helpful"]) == 30
    assert "no assessment helpful that is yes, no, or a number of 0 or more" in seen[1].missing["helpful"]
