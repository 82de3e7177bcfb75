"""What a verdict says, word for word but for the odds; the one who reads it knows both arms, the limit and how sure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from fakes.metrics.samples import Serving, mirrored, traffic

from gates.analyses.agreement import AgreementGate
from gates.analyses.base import as_odds
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import Batch, PairedAnswer
from gates.sequential_test import AnalysisPlan, SequentialTest

TERMS = AnalysisPlan(
    latency=LatencyGate(),
    errors=ErrorsGate(max_increase=0.02),
    judge=ScoresGate(max_drop=0.1),
    sources={"judge": ("users",)},
    temper=False,
)
PAIRED = AnalysisPlan(
    latency=LatencyGate(),
    errors=ErrorsGate(max_increase=0.02),
    agreement=AgreementGate(),
    judge=ScoresGate(),
    sources={"latency": ("probe",), "errors": ("probe",)},
)
STABLE = Serving(180, pods=4, scored=0.1)


def said(terms: AnalysisPlan, batches: Iterable[Batch]) -> dict[str, str]:
    """Outcome and reason of each gate, with all odds but the needed ones left out."""
    trial = SequentialTest(terms)
    for batch in batches:
        trial.take(batch)
    verdicts = trial.verdicts(deadline_passed=True)
    return {
        verdict.gate: f"{verdict.outcome}: "
        + re.sub(r"evidence (over |under )?[\d.,:]+ that", "evidence X that", verdict.reason)
        for verdict in verdicts
    }


@pytest.mark.parametrize(("how", "verb"), [({"failing": 0.2}, "fails"), ({"refusing": 0.2}, "refuses")])
def test_a_failing_and_a_refusing_canary(how: dict[str, float], verb: str) -> None:
    reason = said(TERMS, traffic(Serving(20, **how), STABLE, looks=40))["errors"]
    assert re.fullmatch(
        rf"fail: canary {'failed' if verb == 'fails' else 'refused'} \d+ of \d+ \(\d\d\.\d%\) against \d+ of [\d,]+ "
        rf"\(\d\.\d%\) on stable \(\+\d\d\.\d pp, allowed \+2 pp\): "
        rf"evidence X that it {verb} more often than tolerated, after \d+ requests",
        reason,
    ), reason


def test_a_canary_with_worse_answers() -> None:
    assert said(TERMS, traffic(Serving(20, scored=0.5, score=0.5), STABLE, looks=40))["judge"] == (
        "fail: canary scores 0.52 against 0.79 on stable over 103 pairs (-0.27, allowed -0.1): "
        "evidence X that its answers are worse, after 103 pairs"
    )


def test_a_healthy_canary() -> None:
    found = said(TERMS, traffic(Serving(20, scored=0.5), STABLE, looks=60))
    assert found["latency"] == (
        "pass: canary TTFT p95 is 459 ms against 458 ms on stable (+0 %, allowed +20 %): "
        "evidence X that it is within the margin, after 11,609 requests"
    )
    assert found["judge"] == (
        "pass: canary scores 0.80 against 0.80 on stable over 5,879 pairs (+0.00, allowed -0.1): "
        "evidence X that it is within the margin, after 5,879 pairs"
    )


def test_an_arm_that_is_not_there() -> None:
    nobody = {"latency": "TTFT", "errors": "requests"}
    for arms, who in (((Serving(0), STABLE), "the canary"), ((Serving(20), Serving(0)), "stable")):
        found = said(TERMS, traffic(*arms, looks=5))
        assert found == {gate: f"inconclusive: no {what} of {who}" for gate, what in nobody.items()} | {
            "judge": "inconclusive: no scores of both arms"
        }


def test_why_something_is_missing_is_said() -> None:
    why = "Prometheus has no vllm:time_to_first_token_seconds of pod x"
    batch = Batch(time=1, missing={"ttft": why, "requests": "no proxy is scraped"})
    assert said(TERMS, [batch])["latency"] == f"inconclusive: no TTFT of the canary: {why}"
    assert said(TERMS, [batch])["errors"] == "inconclusive: no requests of the canary: no proxy is scraped"


def test_pairs() -> None:
    assert said(PAIRED, mirrored(20, slower=1.6))["latency"] == (
        "fail: canary TTFT is 327 ms against 206 ms on stable in the median, +64 % within 20 pairs (allowed +20 %): "
        "evidence X that it is later than tolerated, after 20 pairs"
    )
    assert said(PAIRED, mirrored(20, lost=0.4))["errors"] == (
        "fail: of 60 prompts that went to both arms the canary left 18 without an answer, stable 0 (allowed +2 pp): "
        "evidence X that it fails more often than tolerated, after 60 pairs"
    )
    assert said(PAIRED, mirrored(20, alike=0.3))["agreement"] == (
        "fail: answers are 0.31 alike over 40 pairs (at least 0.6): "
        "evidence X that they are less alike than that, after 40 pairs"
    )
    assert said(PAIRED, mirrored(20, lost=0.12))["agreement"].endswith(
        "prompts that stable answered were answered by the canary (at least 90 %): "
        "evidence X that the share is above that (20:1 needed), after 400 pairs"
    )
    assert said(PAIRED, [Batch(time=1, source="probe", pairs=(PairedAnswer(),) * 3)])["latency"] == (
        "inconclusive: no pair has a TTFT on both arms"
    )


@pytest.mark.parametrize(
    ("log_evidence", "odds"),
    [
        (0.0, "1:1"),
        (-1e-17, "1:1"),
        (1.0, "2.7:1"),
        (-1.0, "1:2.7"),
        (2.2994, "10:1"),
        (5.83, "340:1"),
        (-8.0, "1:2,981"),
        (14.0, "over 1,000,000:1"),
        (-800.0, "under 1:1,000,000"),
    ],
)
def test_odds(log_evidence: float, odds: str) -> None:
    assert as_odds(log_evidence) == odds


def test_a_bound_of_nothing_is_always_reached() -> None:
    """`min_similarity: 0` once turned the question around, and likeness was held against the canary."""
    terms = AnalysisPlan(agreement=AgreementGate(min_similarity=0.0, min_coverage=0.5))
    assert said(terms, mirrored(20))["agreement"].startswith("pass: ")


def test_clear_evidence_from_a_sample_smaller_than_asked_for() -> None:
    few = said(AnalysisPlan(latency=LatencyGate(min_requests=50_000)), traffic(Serving(100), STABLE, looks=20))[
        "latency"
    ]
    assert re.search(r": 1\d,\d{3} seen, 50,000 are asked for$", few)
