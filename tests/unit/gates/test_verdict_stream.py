"""Whatever a line holds, it gets one answer; and what could not be read has taught nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from fakes.metrics.samples import Serving, traffic

from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import Batch
from gates.model import GateOutcome
from gates.reports.verdict_stream import MOST_PROBLEMS, VerdictLine, VerdictStream, as_lines
from gates.sequential_test import AnalysisPlan, SequentialTest

pytestmark = pytest.mark.long

TERMS = AnalysisPlan(latency=LatencyGate(), errors=ErrorsGate(max_increase=0.05))
STABLE = Serving(per_second=20, failing=0.002)


def lines(looks: int = 60, *, ttft: float = 0.2) -> list[bytes]:
    healthy = Serving(per_second=5, failing=0.002, ttft=ttft)
    return [batch.model_dump_json().encode() for batch in traffic(healthy, STABLE, looks=looks)]


def changed(line: bytes, *path: str | int, to: Any) -> bytes:
    """The line with one value replaced, or set; `...` takes it away."""
    document = json.loads(line)
    owner = document
    for part in path[:-1]:
        owner = owner[part]
    if to is ...:
        del owner[path[-1]]
    else:
        owner[path[-1]] = to
    return json.dumps(document).encode()


def answered(stream: VerdictStream, line: bytes) -> VerdictLine:
    answer = stream.answer(line)
    assert answer is not None
    return answer


def test_a_line_of_text_is_judged_as_the_batch_itself() -> None:
    stream, trial = VerdictStream(TERMS), SequentialTest(TERMS)
    for line in lines():
        answer = answered(stream, line)
        trial.take(Batch.model_validate_json(line))
        assert answer.verdicts == as_lines(trial.verdicts())
    assert answer.batch == 60
    assert answer.time == 1600


@pytest.mark.parametrize(("ttft", "outcome"), [(0.2, "pass"), (0.4, "fail")])
def test_the_outcome_is_that_of_the_worst_gate(ttft: float, outcome: str) -> None:
    stream = VerdictStream(TERMS)
    answers = [json.loads(answered(stream, line).written()) for line in lines(ttft=ttft)]
    assert answers[0]["outcome"] == "running"
    assert answers[-1]["outcome"] == outcome
    assert set(answers[-1]) == {"time", "batch", "outcome", "verdicts"}
    assert set(answers[-1]["verdicts"][0]) == {"gate", "outcome", "reason", "numbers"}


LINE = lines(1)[0]


@pytest.mark.parametrize(
    ("line", "field", "found", "expected"),
    [
        (b"{", "", "text that is no JSON (EOF while parsing an object at line 1 column 1)", "a JSON object"),
        (b"\xff\xfe", "", "text that is no JSON (expected value at line 1 column 1)", "a JSON object"),
        (b"[]", "", "[]", "an object"),
        (b'{"time": NaN}', "time", "nan", "a finite number"),
        (changed(LINE, "time", to=...), "time", "nothing", "a value here"),
        (changed(LINE, "time", to="1000"), "time", "'1000'", "a valid number"),
        (changed(LINE, "time", to=1.7e12), "time", "1700000000000.0", "less than or equal to 100000000000"),
        (changed(LINE, "arm", to=[]), "arm", "an unknown key", "only keys that are known"),
        (changed(LINE, "arms", 0, "error", to=1), "arms[0].error", "an unknown key", "only keys that are known"),
        (changed(LINE, "arms", 0, "arm", to="blue"), "arms[0].arm", "'blue'", "'stable' or 'canary'"),
        (changed(LINE, "arms", 0, "requests", to=-1), "arms[0].requests", "-1", "greater than or equal to 0"),
        (changed(LINE, "arms", 0, "requests", to=500.5), "arms[0].requests", "500.5", "a valid integer"),
        (changed(LINE, "arms", 0, "requests", to=True), "arms[0].requests", "True", "a valid integer"),
        (changed(LINE, "arms", 0, "requests", to=10**400), "arms[0].requests", "1000", "less than or equal to 1000"),
        (changed(LINE, "arms", 0, "ttft", 1, to=-0.1), "arms[0].ttft[1]", "-0.1", "greater than or equal to 0"),
        (changed(LINE, "arms", 0, "ttft", 1, to=float("nan")), "arms[0].ttft[1]", "nan", "a finite number"),
        (changed(LINE, "arms", 0, "ttft", 1, to=None), "arms[0].ttft[1]", "None", "a valid number"),
        (
            changed(LINE, "arms", 0, "ttft", to={"edges": [1, 2], "counts": [1, 2]}),
            "arms[0].ttft",
            "{'edges': [1, 2], 'counts': [1, 2]}",
            "3 counts, one for each edge and one for what is above the last",
        ),
        (
            changed(LINE, "arms", 0, "ttft", to={"edges": [1], "counts": [1, -2]}),
            "arms[0].ttft.counts[1]",
            "-2",
            "greater than or equal to 0",
        ),
        (changed(LINE, "arms", 0, "errors", to=10**6), "arms[0]", "{'arm':", "at least 1000000 requests"),
    ],
)
def test_a_line_that_is_no_batch_is_answered_with_what_is_wrong_in_it(
    line: bytes, field: str, found: str, expected: str
) -> None:
    stream = VerdictStream(TERMS)
    answered(stream, LINE)
    answer = answered(stream, line)
    assert answer.outcome is GateOutcome.ERROR
    assert (answer.time, answer.batch, answer.verdicts) == (None, 1, ())
    assert [(each.line, each.field) for each in answer.problems] == [(2, field)]
    assert answer.problems[0].found.startswith(found)
    assert answer.problems[0].expected.startswith(expected)
    assert len(answer.written()) < 500


def test_a_whole_number_with_a_point_is_a_count() -> None:
    assert answered(VerdictStream(TERMS), changed(LINE, "arms", 0, "requests", to=500.0)).problems == ()


def test_a_line_with_a_thousand_problems_is_answered_in_a_few() -> None:
    answer = answered(VerdictStream(TERMS), changed(LINE, "arms", 0, "ttft", to=[-1] * 1000))
    assert [each.field for each in answer.problems] == [f"arms[0].ttft[{at}]" for at in range(MOST_PROBLEMS)]


def test_time_that_does_not_rise_is_refused() -> None:
    stream = VerdictStream(TERMS)
    answered(stream, LINE)
    problem = answered(stream, LINE).problems[0]
    assert (problem.line, problem.field) == (2, "time")
    assert problem.found == "a batch at 1010.000 came after one at 1010.000 from the same source"
    assert problem.expected == "batches of one source that rise in time"


def test_lines_that_cannot_be_read_teach_the_trial_nothing() -> None:
    rng = random.Random(5)
    clean, dirty = VerdictStream(TERMS), VerdictStream(TERMS)
    for line in lines(ttft=0.3):
        for _ in range(rng.randrange(3)):
            torn = line[: rng.randrange(1, len(line) - 1)]
            assert answered(dirty, torn).outcome is GateOutcome.ERROR
        assert answered(dirty, line) == answered(clean, line)


def test_blank_lines_are_counted_and_not_answered() -> None:
    stream = VerdictStream(TERMS)
    assert [stream.answer(line) for line in (b"\n", b"  \r\n")] == [None, None]
    assert answered(stream, b"{").problems[0].line == 3


def test_after_a_restart_a_pass_must_be_shown_again() -> None:
    stream = VerdictStream(TERMS)
    assert [answered(stream, line) for line in lines()][-1].outcome is GateOutcome.PASS
    answer = answered(stream, b'{"restart": true}')
    assert (answer.outcome, answer.time, answer.batch) == (GateOutcome.RUNNING, None, 60)


@pytest.mark.parametrize("line", [b'{"restart": false}', b'{"restart": true, "step": "50"}'])
def test_what_only_looks_like_a_restart_is_none(line: bytes) -> None:
    assert answered(VerdictStream(TERMS), line).outcome is GateOutcome.ERROR


@pytest.mark.parametrize(
    ("evidence", "outcome"),
    [
        ([], GateOutcome.INCONCLUSIVE),
        (lines(2), GateOutcome.INCONCLUSIVE),
        (lines(), GateOutcome.PASS),
        (lines(ttft=0.4), GateOutcome.FAIL),
        ([b"{"], GateOutcome.ERROR),
        ([*lines(), b"{"], GateOutcome.ERROR),
        ([*lines(ttft=0.4), b"{"], GateOutcome.FAIL),
        ([b"{", *lines()], GateOutcome.PASS),
    ],
)
def test_what_holds_at_the_end(evidence: list[bytes], outcome: GateOutcome) -> None:
    stream = VerdictStream(TERMS)
    for line in evidence:
        stream.answer(line)
    final = stream.final()
    assert final.outcome is outcome
    assert GateOutcome.RUNNING not in [verdict.outcome for verdict in final.verdicts]


def test_a_source_that_nobody_asks_is_named() -> None:
    stream = VerdictStream(TERMS)
    answered(stream, changed(LINE, "source", to="proxy"))
    assert stream.unasked == {"proxy"}
    both = VerdictStream(AnalysisPlan(latency=LatencyGate(), judge=ScoresGate()))
    for source in ("users", "probe"):
        answered(both, changed(LINE, "source", to=source))
    assert both.unasked == set()


def test_strange_but_possible_evidence_never_ends_the_stream() -> None:
    """Numbers at the ends of what a batch may hold, for every gate and source, with numpy's warnings as errors."""
    rng = random.Random(7)
    terms = AnalysisPlan(
        latency=LatencyGate(),
        errors=ErrorsGate(),
        judge=ScoresGate(),
        sources={"latency": ("users", "proxy", "probe"), "errors": ("users", "probe"), "judge": ("users", "probe")},
    )
    for _ in range(4):
        stream, time = VerdictStream(terms), 0.0
        for _ in range(100):
            time += rng.choice([1e-6, 1, 10, 1e6])
            line = json.dumps(strange(rng, time)).encode()
            json.loads(answered(stream, line).written(), parse_constant=pytest.fail)


def strange(rng: random.Random, time: float) -> dict[str, Any]:
    seconds, counts = [0, 5e-324, 1e-300, 0.001, 0.2, 600, 1e9], [0, 1, 100, 10**12]

    def times() -> Any:
        if rng.random() < 0.7:
            return rng.choices(seconds, k=rng.choice([0, 1, 30]))
        edges = sorted(set(rng.choices(seconds[1:], k=rng.choice([1, 2, 4]))))
        return {"edges": edges, "counts": rng.choices(counts, k=len(edges) + 1)}

    def reply() -> Any:
        return rng.choice([None, {"ttft": rng.choice(seconds), "score": rng.choice([0, 0.5, 1])}])

    arms = [
        {
            "arm": arm,
            "pod": rng.choice("abc"),
            "requests": rng.choice(counts),
            "ttft": times(),
            "scores": rng.choices([0, 0.5, 1], k=rng.choice([0, 5])),
        }
        for arm in rng.sample(["stable", "canary"], k=rng.choice([0, 1, 2]))
    ]
    pairs = [{"stable": reply(), "canary": reply()} for _ in range(rng.choice([0, 5]))]
    return {"time": time, "source": rng.choice(["users", "proxy", "probe"]), "arms": arms, "pairs": pairs}
