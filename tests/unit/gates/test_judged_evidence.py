"""Whatever a line of evidence holds, it is learnt from, or refused with what is wrong and has taught nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from fakes.metrics.samples import Serving, traffic

from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import Batch
from gates.reports.check_report import CheckReport
from gates.reports.evidence import MOST_PROBLEMS, judge_evidence
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.spec import Problem, SpecError

TERMS = AnalysisPlan(latency=LatencyGate(), errors=ErrorsGate(max_increase=0.05))
STABLE = Serving(per_second=20, failing=0.002)


def lines(looks: int = 12, *, ttft: float = 0.2) -> list[bytes]:
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


def read(*lines: bytes, terms: AnalysisPlan = TERMS) -> CheckReport:
    return judge_evidence(terms, lines, name="llm")[0]


def problems(*lines: bytes) -> Sequence[Problem]:
    with pytest.raises(SpecError) as refused:
        read(*lines)
    return refused.value.problems


def test_lines_of_text_are_judged_as_the_batches_themselves() -> None:
    trial = SequentialTest(TERMS)
    for line in lines():
        trial.take(Batch.model_validate_json(line))
    report = read(*lines())
    assert report.verdicts == trial.verdicts(deadline_passed=True)
    assert (report.batches, report.since, report.until) == (12, 1010, 1120)


LINE = lines(1)[0]


@pytest.mark.parametrize(
    ("line", "field", "found", "expected"),
    [
        (b"{", "", "text that is no JSON (EOF while parsing an object at line 1 column 1)", "a JSON object"),
        (b'{"time": NaN}', "time", "nan", "a finite number"),
        (changed(LINE, "time", to=1.7e12), "time", "1700000000000.0", "less than or equal to 100000000000"),
        (changed(LINE, "arms", 0, "error", to=1), "arms[0].error", "an unknown key", "only keys that are known"),
        (changed(LINE, "arms", 0, "arm", to="blue"), "arms[0].arm", "'blue'", "'stable' or 'canary'"),
        (changed(LINE, "arms", 0, "requests", to=500.5), "arms[0].requests", "500.5", "a valid integer"),
        (changed(LINE, "arms", 0, "ttft", 1, to=-0.1), "arms[0].ttft[1]", "-0.1", "greater than or equal to 0"),
        (
            changed(LINE, "arms", 0, "ttft", to={"edges": [1, 2], "counts": [1, 2]}),
            "arms[0].ttft",
            "{'edges': [1, 2], 'counts': [1, 2]}",
            "3 counts, one for each edge and one for what is above the last",
        ),
        (changed(LINE, "arms", 0, "errors", to=10**6), "arms[0]", "{'arm':", "at least 1000000 requests"),
        (
            changed(LINE, "arms", 0, "ttft", to={"edges": [2, 1], "counts": [1, 2, 3]}),
            "arms[0].ttft",
            "{'edges': [2, 1]",
            "edges that rise",
        ),
        (changed(LINE, "arms", to=[{"arm": "canary"}] * 2), "", "{'time':", "each pod of an arm once"),
    ],
)
def test_a_line_that_is_no_batch_is_refused_with_what_is_wrong_in_it(
    line: bytes, field: str, found: str, expected: str
) -> None:
    (problem,) = problems(LINE, line)
    assert (problem.file, problem.line, problem.path) == ("stdin", 2, field)
    assert problem.found.startswith(found)
    assert problem.expected.startswith(expected)
    assert len(str(problem)) < 300


def test_a_whole_number_with_a_point_is_a_count() -> None:
    read(changed(LINE, "arms", 0, "requests", to=500.0))


def test_of_a_line_with_a_thousand_problems_a_few_are_told() -> None:
    told = problems(changed(LINE, "arms", 0, "ttft", to=[-1] * 1000))
    assert [each.path for each in told] == [f"arms[0].ttft[{at}]" for at in range(MOST_PROBLEMS)]


def test_time_that_does_not_rise_is_refused() -> None:
    (problem,) = problems(LINE, LINE)
    assert (problem.line, problem.path) == (2, "time")
    assert problem.found == "a batch at 1010.000 came after one at 1010.000 from the same source"
    assert problem.expected == "batches of one source that rise in time"


def test_every_line_that_is_none_is_named_and_blank_ones_are_counted() -> None:
    assert [each.line for each in problems(b"\n", b"{", b"  \r\n", LINE, b"3")] == [2, 5]
    assert read(b"\n", b"  \r\n").batches == 0


def test_after_a_restart_a_pass_must_be_shown_again() -> None:
    assert str(read(*lines(60)).outcome) == "pass"
    again = read(*lines(60), b'{"restart": true}\n')
    assert (str(again.outcome), again.batches) == ("inconclusive", 60)
    assert problems(b'{"restart": false}') and problems(b'{"restart": true, "step": "50"}')


def test_a_source_that_nobody_asks_is_named() -> None:
    both = AnalysisPlan(latency=LatencyGate(), judge=ScoresGate())
    asked = [changed(LINE, "source", to=source) for source in ("users", "probe")]
    assert judge_evidence(both, asked, name="")[1] == set()
    assert judge_evidence(TERMS, asked, name="")[1] == {"probe"}
