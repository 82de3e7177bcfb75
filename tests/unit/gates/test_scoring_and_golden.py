from __future__ import annotations

from pathlib import Path

import pytest

from gates.golden import load_golden, score_answers
from gates.scoring import score, similarity
from gates.spec import Gates, QualityGate, Scorer
from tidegate.core.spec import SpecError, parse_spec


@pytest.mark.parametrize(
    ("scorer", "answer", "expected", "points"),
    [
        (Scorer.CONTAINS, "The capital is PARIS.", "Paris", 1),
        (Scorer.CONTAINS, "Parisian food", "Paris", 0),
        (Scorer.CONTAINS, "in New  Delhi, India", "new delhi", 1),
        (Scorer.CONTAINS, "", "Paris", 0),
        (Scorer.EXACT, "The Paris!", "paris", 1),
        (Scorer.EXACT, "Paris, France", "Paris", 0),
        (Scorer.NUMERIC, "2 + 2 is 4.", "4", 1),
        (Scorer.NUMERIC, "1,200 apples", "1200", 1),
        (Scorer.NUMERIC, "four", "4", 0),
        (Scorer.F1, "Paris", "Paris France", 2 / 3),
    ],
)
def test_answers_are_scored(scorer: Scorer, answer: str, expected: str, points: float) -> None:
    assert score(scorer, answer, expected) == pytest.approx(points)


def test_similarity_is_one_for_the_same_words_and_zero_for_none_shared() -> None:
    assert similarity("a b c", "c b a") == 1
    assert similarity("", "") == 1
    assert similarity("", "x") == similarity("x", "y") == 0


def test_a_golden_set_is_read_and_scored(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    path.write_text('{"prompt": "2+2?", "expected": "4", "scorer": "numeric"}\n\n{"prompt": "?", "expected": "yes"}\n')
    golden = load_golden(path)
    scores = score_answers(golden, {"2+2?": "it is 4"}, Scorer.CONTAINS)
    assert scores.by_prompt == {"2+2?": 1.0}


def test_every_problem_of_a_golden_set_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    lines = ['{"prompt": "a", "expected": "b"}', "{", '{"prompt": "c"}', '{"prompt": "a", "expected": "b"}']
    path.write_text("\n".join([*lines, '{"prompt": "n", "expected": "x", "scorer": "numeric"}', "3"]))
    with pytest.raises(SpecError) as caught:
        load_golden(path)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4, 5, 6]
    assert "golden.jsonl:3: expected: found nothing" in str(caught.value)


def test_an_empty_or_missing_golden_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("empty.jsonl", "missing.jsonl"):
        with pytest.raises(SpecError):
            load_golden(tmp_path / name)


def test_the_example_golden_set_is_valid() -> None:
    assert len(load_golden(Path(__file__).parents[3] / "examples/support/golden.jsonl")) >= 24


def test_a_spec_states_its_margins_with_units() -> None:
    text = "latency: {metric: itl, max_increase: 10%}\nquality: {max_drop: 0.03}\nerrors: {max_increase: 1pp}\n"
    gates = parse_spec(text, Gates, file="gates.yaml")
    assert gates.latency and gates.latency.max_increase == 0.1
    assert gates.errors and gates.errors.max_increase == 0.01
    assert gates.quality == QualityGate(max_drop=0.03)
    assert parse_spec("quality: {max_drop: 3pp}", Gates, file="g").quality == QualityGate(max_drop=0.03)
    with pytest.raises(SpecError):
        parse_spec("quality: {max_drop: 5}", Gates, file="g")
