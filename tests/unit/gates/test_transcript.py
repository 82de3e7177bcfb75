"""What was judged can be judged again from what was written, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gates.analyses.agreement import AgreementGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, Buckets, PairedAnswer, PairedReply, PodEvidence
from gates.sequential_test import METHOD, AnalysisPlan, SequentialTest
from gates.transcript import (
    BatchLine,
    Line,
    RestartLine,
    TermsLine,
    VerdictsLine,
    read,
    replay,
)
from tidegate.core.spec import SpecError

STEP = "canary@eu-west-1/25"


def terms() -> AnalysisPlan:
    return AnalysisPlan(
        latency=LatencyGate(),
        errors=ErrorsGate(),
        agreement=AgreementGate(),
        judge=ScoresGate(),
        sources={"latency": ("users", "proxy")},
        rollback=0.01 / 3,
    )


def pod(rng: np.random.Generator, arm: ArmName, name: str, requests: int, slower: float) -> PodEvidence:
    times = tuple(rng.lognormal(-1.5, 0.5, requests) * slower)
    errors = int(rng.binomial(requests, 0.01))
    return PodEvidence(arm=arm, pod=name, requests=requests, errors=errors, ttft=times, scores=(rng.random(),))


def batches(count: int, *, slower: float = 1.0) -> Iterator[Batch]:
    """Of users, of proxies with buckets, and of a probe."""
    rng = np.random.default_rng(3)
    edges = tuple(0.01 * 1.5**power for power in range(20))
    for at in range(count):
        users = (
            pod(rng, ArmName.STABLE, "a", 60, 1),
            pod(rng, ArmName.STABLE, "b", 60, 1.02),
            pod(rng, ArmName.CANARY, "c", 20, slower),
        )
        yield Batch(time=1e9 + at * 10 + rng.random(), arms=users)
        counts = [tuple(rng.multinomial(50, [1 / 21] * 21).tolist()) for _ in ArmName]
        counted = tuple(
            PodEvidence(arm=arm, requests=50, ttft=Buckets(edges=edges, counts=each))
            for arm, each in zip(ArmName, counts, strict=True)
        )
        yield Batch(time=1e9 + at * 10 + rng.random(), source="proxy", arms=counted, missing={"itl": "no histogram"})
        replies = [PairedReply(ttft=rng.random(), score=rng.random(), output_tokens=9) for _ in range(8)]
        pairs = tuple(
            PairedAnswer(stable=one, canary=other, similarity=rng.random())
            for one, other in zip(replies[::2], replies[1::2], strict=True)
        )
        yield Batch(time=1e9 + at * 10 + rng.random(), source="probe", pairs=pairs)


def held(trial: SequentialTest, evidence: Iterator[Batch]) -> Iterator[Line]:
    """As a recorder writes it."""
    yield TermsLine(trial="canary@eu-west-1", terms=trial.plan)
    for number, batch in enumerate(evidence):
        if number == 30:
            trial.restart()
            yield RestartLine(step=STEP)
        trial.take(batch)
        yield BatchLine(step=STEP, batch=batch)
        yield VerdictsLine(step=STEP, verdicts=trial.verdicts())
    yield VerdictsLine(step=STEP, deadline_passed=True, verdicts=trial.verdicts(deadline_passed=True))


def texts(*, slower: float = 1.0) -> list[str]:
    return [line.model_dump_json() + "\n" for line in held(SequentialTest(terms()), batches(25, slower=slower))]


def of(text: list[str]) -> list[Line]:
    return list(read(text, file="trial.jsonl"))


@pytest.mark.parametrize("slower", [1.0, 1.6])
def test_a_trial_that_is_held_again_says_the_same(slower: float) -> None:
    assert replay(of(texts(slower=slower)))[1] == []


def test_the_smallest_change_of_the_evidence_is_found() -> None:
    lines = of(texts())
    first = lines[1]
    assert isinstance(first, BatchLine)
    changed = first.batch.arms[0].model_copy(update={"requests": first.batch.arms[0].requests + 1})
    batch = first.batch.model_copy(update={"arms": (changed, *first.batch.arms[1:])})
    _, found = replay([lines[0], first.model_copy(update={"batch": batch}), *lines[2:]])
    assert f"line 3: {STEP}: gate errors: numbers.stable_requests: recorded 120.0, now 121.0" in found


@pytest.mark.long
def test_the_smallest_change_of_a_verdict_is_found() -> None:
    lines = of(texts())
    last = lines[-1]
    assert isinstance(last, VerdictsLine)
    number = last.verdicts[0].numbers["evidence_worse"]
    numbers = {**last.verdicts[0].numbers, "evidence_worse": float(np.nextafter(number, 2))}
    verdict = last.verdicts[0].model_copy(update={"numbers": numbers})
    _, (found,) = replay([*lines[:-1], last.model_copy(update={"verdicts": (verdict, *last.verdicts[1:])})])
    assert found.endswith(
        f"gate latency: numbers.evidence_worse: recorded {float(np.nextafter(number, 2))!r}, now {number!r}"
    )


@pytest.mark.long
def test_a_last_line_that_was_torn_is_left_out() -> None:
    whole = texts()
    assert replay(of([*whole[:-1], whole[-1][:40]]))[1] == []


def test_a_torn_line_in_the_middle_is_an_error_with_its_number() -> None:
    whole = texts()
    with pytest.raises(
        SpecError, match=r"^trial.jsonl:2: found text that is no JSON \(EOF while .*\); expected a JSON object"
    ):
        of([whole[0], whole[1][:40] + "\n", whole[2]])


def test_terms_of_another_method_cannot_be_judged() -> None:
    first = texts()[0].replace(METHOD, "e-values/0")
    with pytest.raises(SpecError, match=r"trial.jsonl:1: terms.terms.method: found 'e-values/0'"):
        of([first])


@pytest.mark.long
@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ([], "no terms"),
        ([1], "trial.jsonl:1: found no terms"),
        ([0, 0], "trial.jsonl:2: found terms again"),
    ],
)
def test_lines_that_are_not_those_of_one_trial_are_refused(order: list[int], problem: str) -> None:
    lines = of(texts())
    with pytest.raises(SpecError, match=problem):
        replay([lines[at] for at in order], file="trial.jsonl")


@pytest.mark.long
def test_a_batch_that_the_trial_refused_is_refused_again() -> None:
    lines = of(texts())
    again = [*lines[:3], lines[1], *lines[2:]]
    assert replay(again)[1] == []


def test_a_trial_goes_on_from_where_its_transcript_ends() -> None:
    whole = of(texts(slower=1.6))
    trial, _ = replay(whole[:40])
    for line in whole[40:]:
        if isinstance(line, BatchLine):
            trial.take(line.batch)
        elif isinstance(line, RestartLine):
            trial.restart()
    last = whole[-1]
    assert isinstance(last, VerdictsLine)
    assert trial.verdicts(deadline_passed=True) == last.verdicts
