"""A burn is a burn when both windows show it and chance is an unlikely reason, however often was asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import numpy as np
import pytest
from fakes.metrics.asked import FakeQueries

from gates.analyses.burn_rate import (
    BurnRateGate,
    BurnRateMonitor,
    SlowerThan,
    events_of,
    slow_events_of,
)
from gates.analyses.queries import Window, WithQueries, asking_prometheus
from gates.evidence.batch import ArmName, Batch, Buckets, Events, PodEvidence
from gates.model import ArmKey, GateOutcome, NoData, Verdict
from tidegate.core.spec import SpecError, parse_spec
from tidegate.testing import FakeEvidence

GATE = BurnRateGate(objective=0.999)
"""Its slow pair allows 6 in 1,000 bad events."""


def seen(events: Iterable[tuple[int, int]], gate: BurnRateGate = GATE) -> BurnRateMonitor:
    """(total, bad) at each look."""
    burn = BurnRateMonitor(gate)
    for number, (total, bad) in enumerate(events, start=1):
        burn.look(number * 10, 10, Events(total=total, bad=bad))
    return burn


def judged(*events: tuple[int, int], gate: BurnRateGate = GATE) -> Verdict:
    return seen(events, gate).verdict()


def test_three_requests_are_no_burn() -> None:
    assert judged((1, 1), (1, 1), (1, 1)).outcome is GateOutcome.RUNNING
    late = seen([(3, 3)]).verdict(deadline_passed=True)
    assert late.outcome is GateOutcome.INCONCLUSIVE
    assert "which may be chance still" in late.reason


def test_an_outage_fails_at_once_and_says_how_fast() -> None:
    verdict = judged((100, 0), (100, 30))
    assert verdict.outcome is GateOutcome.FAIL
    assert verdict.reason == (
        "spends the error budget 150 times too fast in 25s and 150 times in 5m (allowed 14.4): "
        "evidence over 1,000,000:1 that it is no chance"
    )
    assert verdict.numbers["fast_short_burn_rate"] == pytest.approx(150)


def test_a_slow_burn_is_found_with_time() -> None:
    rng = np.random.default_rng(1)
    events = [(200, int(rng.binomial(200, 0.012))) for _ in range(60)]
    verdict = judged(*events)
    assert verdict.outcome is GateOutcome.FAIL and "(allowed 6)" in verdict.reason


def test_a_burn_that_is_over_is_no_burn() -> None:
    # Asked before the errors had left the long windows, but not the short ones.
    gate = BurnRateGate(objective=0.999, min_events=5000)
    assert judged((100, 20), *[(100, 0)] * 60, gate=gate).outcome is GateOutcome.PASS


def test_a_burn_that_began_late_is_found_in_the_short_windows_of_the_fast_pair() -> None:
    verdict = judged(*[(200, 0)] * 400, *[(200, 8)] * 30)
    assert verdict.outcome is GateOutcome.FAIL


def test_a_pass_needs_evidence() -> None:
    assert judged((30, 0)).outcome is GateOutcome.RUNNING
    verdict = judged(*[(100, 0)] * 10)
    assert verdict.outcome is GateOutcome.PASS
    assert verdict.reason.startswith("0 of 1,000 events were bad: evidence ")


def test_without_traffic_nothing_passes_whatever_was_shown_before() -> None:
    burn = seen([(100, 0)] * 10)
    assert burn.verdict().outcome is GateOutcome.PASS
    burn.look(200, 100, NoData(reason="Prometheus has no such series"))
    assert burn.verdict().outcome is GateOutcome.RUNNING
    assert burn.verdict(deadline_passed=True).reason == "no events: Prometheus has no such series"
    burn.look(210, 10, Events(total=0, bad=0))
    assert burn.verdict(deadline_passed=True).outcome is GateOutcome.INCONCLUSIVE


def test_a_proven_burn_stays_one() -> None:
    assert judged((100, 50), *[(1000, 0)] * 200).outcome is GateOutcome.FAIL


def share_of(outcome: GateOutcome, rate: float, *, runs: int, total: int, every: int) -> float:
    """How many of so many trials of 60 looks ever had that outcome."""
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(runs):
        burn = BurnRateMonitor(GATE)
        for number, bad in enumerate(rng.binomial(total, rate, every), start=1):
            burn.look(number * 10, 10, Events(total=total, bad=int(bad)))
            if burn.verdict().outcome is outcome:
                found += 1
                break
    return found / runs


@pytest.mark.long
def test_a_version_at_the_edge_of_a_burn_rarely_fails_and_rarely_passes() -> None:
    # 1 % and 5 % are the promises; 150 runs may give so many.
    assert share_of(GateOutcome.FAIL, 0.006, runs=150, total=200, every=60) <= 0.03
    assert share_of(GateOutcome.PASS, 0.006, runs=150, total=200, every=60) <= 0.08


def test_a_healthy_version_passes_and_a_burning_one_fails() -> None:
    assert share_of(GateOutcome.PASS, 0.001, runs=50, total=200, every=60) >= 0.98
    assert share_of(GateOutcome.FAIL, 0.02, runs=50, total=200, every=60) >= 0.98


def test_requests_of_an_arm_are_events() -> None:
    pods = (
        PodEvidence(arm=ArmName.CANARY, pod="a", requests=5, errors=1, refused=2),
        PodEvidence(arm=ArmName.CANARY, pod="b"),
    )
    assert events_of(Batch(time=1, arms=pods), ArmName.CANARY) == Events(total=3, bad=1)
    assert events_of(Batch(time=1, arms=pods), ArmName.STABLE) == NoData(reason="nothing is known of the stable arm")
    silent = Batch(time=1, arms=pods[1:], missing={"requests": "not scraped"})
    assert events_of(silent, ArmName.CANARY) == NoData(reason="not scraped")


def test_answers_that_took_too_long_are_events() -> None:
    slower = SlowerThan(metric="ttft", than=timedelta(seconds=0.25))
    buckets = Buckets(edges=(0.1, 0.25, 1.0), counts=(4, 3, 2, 1))
    pods = (
        PodEvidence(arm=ArmName.CANARY, pod="a", requests=10, ttft=buckets),
        PodEvidence(arm=ArmName.CANARY, pod="b", requests=3, ttft=(0.25, 0.26)),
        PodEvidence(arm=ArmName.CANARY, pod="c", requests=9, errors=9),
        PodEvidence(arm=ArmName.STABLE, requests=1, ttft=(9.0,)),
    )
    assert slow_events_of(Batch(time=1, arms=pods), ArmName.CANARY, slower) == Events(total=12, bad=4)
    between = SlowerThan(metric="ttft", than=timedelta(seconds=0.3))
    assert slow_events_of(Batch(time=1, arms=pods), ArmName.CANARY, between) == NoData(
        reason="the histogram has no edge at 0.3 s"
    )


def test_without_times_nothing_is_known_and_the_reason_is_told() -> None:
    slower = SlowerThan(metric="e2e", than=timedelta(seconds=1))
    failed = Batch(
        time=1, arms=(PodEvidence(arm=ArmName.CANARY, requests=2, errors=2),), missing={"e2e": "not scraped"}
    )
    assert slow_events_of(failed, ArmName.CANARY, slower) == NoData(reason="not scraped")
    assert slow_events_of(Batch(time=1), ArmName.CANARY, slower) == NoData(
        reason="nothing is known of the e2e of the canary arm"
    )


def test_a_watch_counts_what_its_gate_asks() -> None:
    gate = BurnRateGate(objective=0.99, slower=SlowerThan(metric="ttft", than=timedelta(seconds=0.25)))
    watch = BurnRateMonitor(gate, rollback=0.01, accept=0.05)
    for time in range(1, 5):
        arms = (PodEvidence(arm=ArmName.CANARY, requests=50, ttft=Buckets(edges=(0.25, 1.0), counts=(20, 30, 0))),)
        watch.take(Batch(time=time * 10, source="proxy", arms=arms), 10)
    verdict = watch.verdict(deadline_passed=False)
    assert verdict.outcome is GateOutcome.FAIL, "no request failed, but most were slow"
    assert verdict.numbers["bad_events"] == 30, "as it was when the burn was proven"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min_events: 3", "objective: found nothing; expected an objective, or the name of an SLO at `slo`"),
        ("objective: 99%\nslo: ttft", "objective: found one next to `slo`"),
        (
            "objective: 99%\nslower: {metric: ttft, than: 1s}\n"
            "errors_query: e[{{.window}}]\ntotal_query: t[{{.window}}]",
            "slower: found times and queries; expected one of both",
        ),
        ("objective: 99%\nslower: {metric: queue, than: 1s}", "slower.metric: found 'queue'"),
        ("objective: 99.9%\nerrors_query: sum(rate(e[{{.window}}]))", "total_query: found nothing"),
        ("objective: 99.9%\nerrors_query: sum(rate(e[5m]))", "as in Sloth's events SLI"),
        ("objective: 99.9%\ntotal_query: sum(increase(e[{{.window}}]))", "expected events a second"),
        ("objective: 99.9%\nerrors_query: e[{{.window}}] {{.pod}}", "not pod"),
        ("objective: 90%", "fast.factor: found 14.4; expected less than 10"),
        ("objective: 99%\nslow: {short: 5m, long: 1m, factor: 6}", "slow.short: found 5m; expected less than 1m"),
        ("objective: 99.9", "percent such as"),
    ],
)
def test_a_gate_that_cannot_work_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text, BurnRateGate, file="gate.yaml")


class Answers(FakeQueries):
    """By query, the number that it gives."""

    def __init__(self, **numbers: float) -> None:
        self.numbers = numbers

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        found = self.numbers.get(query.partition("[")[0])
        return NoData(reason=f"Prometheus has nothing for {query}") if found is None else found


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({"e": 0.5, "t": 5.0}, Events(total=50, bad=5)),
        ({"e": 9.0, "t": 5.0}, Events(total=50, bad=50)),
        ({"e": 0.5}, "Prometheus has nothing for t[{{.window}}]"),
        ({"t": 5.0}, "Prometheus has nothing for e[{{.window}}]; end it with `or vector(0)` if no errors are"),
        ({"e": -1.0, "t": 5.0}, "Prometheus answers -1 to a query that counts events"),
    ],
)
def test_queries_give_events_or_say_why_not(answers: dict[str, float], found: Events | str) -> None:
    gate = BurnRateGate(objective=0.99, errors_query="e[{{.window}}]", total_query="t[{{.window}}]")
    arms = (ArmKey(region="eu", role="stable", version="1"), ArmKey(region="eu", role="canary", version="2"))
    source = WithQueries(FakeEvidence(), Answers(**answers), asking_prometheus({"burn_rate": gate}))
    batch = source.batch(*arms, datetime.fromtimestamp(0), datetime.fromtimestamp(10))
    assert batch.events == (found if isinstance(found, Events) else None)
    assert batch.missing.get("events", "").startswith("" if isinstance(found, Events) else found)
    assert asking_prometheus({"burn_rate": GATE}) == {}


def test_a_burn_names_its_slo() -> None:
    gate = BurnRateGate(slo="availability", objective=0.999)
    assert judged((100, 50), gate=gate).reason.startswith("spends the error budget of availability 500 times too fast")
