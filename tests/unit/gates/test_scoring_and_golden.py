from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from gates.answers.golden import SCORERS, fits, load_golden
from gates.model import Scorer
from tidegate.core.spec import SpecError


@pytest.mark.parametrize(
    ("scorer", "answer", "expected", "points"),
    [
        (Scorer.CONTAINS, "The capital is PARIS.", "Paris", 1),
        (Scorer.CONTAINS, "Parisian food", "Paris", 0),
        (Scorer.CONTAINS, "in New  Delhi, India", "new delhi", 1),
        (Scorer.CONTAINS, "", "Paris", 0),
        (Scorer.CONTAINS, "答えは東京です。", "東京", 1),
        (Scorer.EXACT, "The Paris!", "paris", 1),
        (Scorer.EXACT, "Paris, France", "Paris", 0),
        (Scorer.NUMERIC, "2 + 2 is 4.", "4", 1),
        (Scorer.NUMERIC, "1,200 apples", "1200", 1),
        (Scorer.NUMERIC, "four", "4", 0),
        (Scorer.NUMERIC, "about 1.5e3", "1500", 1),
        (Scorer.NUMERIC, "3, or rather -3", "-3", 1),
        (Scorer.F1, "Paris", "Paris France", 2 / 3),
        (Scorer.F1, "東京です", "東京", 2 / 3),
        (Scorer.F1, "", "", 1),
    ],
)
def test_answers_are_scored(scorer: Scorer, answer: str, expected: str, points: float) -> None:
    assert SCORERS[scorer](answer, expected) == pytest.approx(points)


A_CITY: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris"]}, "population": {"type": "number", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("answer", "points"),
    [
        (' {"city": "Paris", "population": 2e6}\n', 1),
        ('{"city": "Lyon"}', 0),
        ('{"city": "Paris", "population": NaN}', 0),
        ('```json\n{"city": "Paris"}\n```', 0),
        ("[" * 100_000, 0),
    ],
)
def test_an_answer_fits_its_schema_or_does_not(answer: str, points: float) -> None:
    assert fits(answer, A_CITY) == points


def test_every_line_of_a_golden_set_is_scored_by_its_own_scorer(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text(
        '{"prompt": "city?", "schema": {"type": "object"}}\n'
        '{"prompt": "say ab", "expected": "ab", "scorer": "contains"}\n'
        '{"prompt": "word?", "expected": "yes"}\n'
    )
    golden = load_golden(path)
    answers = {"city?": "{}", "say ab": "So: ab.", "word?": "Yes."}
    assert [entry.points(answers[entry.prompt], Scorer.EXACT) for entry in golden] == [1, 1, 1]


@pytest.mark.parametrize(
    ("line", "scorer", "problem"),
    [
        (
            '{"prompt": "p"}',
            "exact",
            "golden.jsonl:1: expected: found nothing; expected one of `expected` and `schema`",
        ),
        ('{"prompt": "p", "expected": "x", "schema": {}}', "exact", "golden.jsonl:1: expected: found both"),
        ('{"prompt": "p", "schema": {"type": "objekt"}}', "exact", 'golden.jsonl:1: schema: found "objekt"'),
        ('{"prompt": "p", "schema": {"$ref": "http://127.0.0.1:9/s"}}', "exact", "golden.jsonl:1: schema: found"),
        ('{"prompt": "p", "schema": {"$ref": "file:///etc/hosts"}}', "exact", "golden.jsonl:1: schema: found"),
        ('{"prompt": "p", "expected": "four"}', "numeric", "golden.jsonl:1: expected: found 'four'"),
        ('{"prompt": "p", "expected": "nan", "scorer": "numeric"}', "exact", "a number for the numeric scorer"),
        ('{"prompt": "p", "expected": "x", "scorer": "bleu"}', "exact", "'exact', 'numeric' or 'f1'"),
        ('{"prompt": "p", "expected": ""}', "f1", "golden.jsonl:1: expected: found nothing"),
    ],
)
def test_a_line_that_its_scorer_cannot_use_is_refused(tmp_path: Path, line: str, scorer: str, problem: str) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text(line)
    with pytest.raises(SpecError) as caught:
        load_golden(path, Scorer(scorer))
    assert problem in str(caught.value)


def test_every_problem_of_a_golden_set_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    lines = ['{"prompt": "a", "expected": "b"}', "{", '{"prompt": "c"}', '{"prompt": "a", "expected": "b"}']
    path.write_text("\n".join([*lines, '{"prompt": "n", "expected": "x", "scorer": "numeric"}', "3"]))
    with pytest.raises(SpecError) as caught:
        load_golden(path)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4, 5, 6]
    assert "golden.jsonl:3: expected: found nothing" in str(caught.value)


def test_the_example_golden_set_is_valid() -> None:
    assert len(load_golden(Path(__file__).parents[3] / "examples/kubernetes/golden.jsonl")) >= 24
