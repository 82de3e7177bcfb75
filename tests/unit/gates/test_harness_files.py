"""What is read of lm-evaluation-harness' files: real ones, of lm_eval 0.4.13 asking a vLLM, and broken ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gates.adapters.outside.harness_files import evaluation_in
from gates.analyses.outside.evaluation import Evaluation, QuestionScore, difference, pairs_of
from gates.analyses.outside.evaluation_spec import EvalGate

REAL = Path(__file__).parents[2] / "golden/lm_eval"
"""`choices` has two metrics, `parts` two filters; three questions each."""


def one_task(folder: Path, task: str) -> Path:
    """The real files as a run of that task alone would have left them."""
    target = folder / "tiny"
    target.mkdir()
    for path in REAL.rglob(f"samples_{task}_*"):
        shutil.copy(path, target)
    (results,) = REAL.rglob("results_*.json")
    said = json.loads(results.read_text())
    said["n-samples"] = {task: said["n-samples"][task]}
    (target / results.name).write_text(json.dumps(said))
    return folder


def scores(evaluation: Evaluation) -> list[float]:
    return [question.score for _, question in sorted(evaluation.questions.items())]


def test_a_metric_of_several_is_read_question_by_question(tmp_path: Path) -> None:
    found = evaluation_in(one_task(tmp_path, "choices"), EvalGate(task="choices", metric="acc"))
    assert found.harness == "lm_eval 0.4.13 (choices 1.0)"
    (file,) = tmp_path.rglob("samples_*")
    real = [json.loads(line) for line in file.read_text().splitlines()]
    assert scores(found) == [line["acc"] for line in real]
    assert found.questions["choices/2"].doc_hash == real[2]["doc_hash"] != ""


def test_a_filter_of_several_is_named(tmp_path: Path) -> None:
    folder = one_task(tmp_path, "parts")
    found = evaluation_in(folder, EvalGate(task="parts", filter="whole"))
    assert scores(found) == [1.0, 1.0, 1.0]
    assert scores(evaluation_in(folder, EvalGate(task="parts", filter="digits"))) == [0.0, 0.0, 0.0]


def test_a_group_is_all_questions_of_its_tasks(tmp_path: Path) -> None:
    shutil.copytree(REAL, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.rglob("samples_parts_*"):
        file.write_text(file.read_text().replace("exact_match", "acc").replace('"whole"', '"none"'))
        lines = [line for line in file.read_text().splitlines() if '"filter": "none"' in line]
        file.write_text("\n".join(lines) + "\n")
    found = evaluation_in(tmp_path, EvalGate(task="all", metric="acc"))
    assert sorted(found.questions) == [f"{task}/{number}" for task in ("choices", "parts") for number in range(3)]


def test_a_number_that_is_better_when_it_is_lower_is_turned(tmp_path: Path) -> None:
    folder = one_task(tmp_path, "choices")
    as_it_is = scores(evaluation_in(folder, EvalGate(task="choices", metric="acc")))
    change_results(folder, lambda said: said["higher_is_better"]["choices"].update(acc=False))
    assert scores(evaluation_in(folder, EvalGate(task="choices", metric="acc"))) == [1 - each for each in as_it_is]


def change_results(folder: Path, change: Callable[[dict[str, dict[str, dict[str, object]]]], object]) -> None:
    (results,) = folder.rglob("results_*.json")
    said = json.loads(results.read_text())
    change(said)
    results.write_text(json.dumps(said))


def lines_changed(old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        for file in folder.rglob("samples_*"):
            text = file.read_text()
            assert old in text
            file.write_text(text.replace(old, new))

    return change


def removed(pattern: str) -> Callable[[Path], object]:
    return lambda folder: [path.unlink() for path in folder.rglob(pattern)]


def last_line_cut(folder: Path) -> None:
    for file in folder.rglob("samples_*"):
        file.write_text(file.read_text()[:-40])


def last_line_gone(folder: Path) -> None:
    for file in folder.rglob("samples_*"):
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


def first_line_twice(folder: Path) -> None:
    for file in folder.rglob("samples_*"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([lines[0], *lines[:-1]]))


@pytest.mark.parametrize(
    ("broken", "settings", "told"),
    [
        (removed("results_*"), {}, "it wrote no results_TIME.json; expected one"),
        (removed("samples_*"), {}, "it wrote no samples_TASK_TIME.jsonl"),
        (last_line_cut, {}, ".jsonl:3: invalid json"),
        (last_line_gone, {}, "samples of choices: found 2 questions; expected 3"),
        (first_line_twice, {}, ".jsonl:2: doc_id: found 0 a second time; expected it once"),
        (lines_changed('"doc_id"', '"id"'), {}, ".jsonl:1: doc_id: field required"),
        (lines_changed('"acc": ', '"acc": 7'), {}, "found 7"),
        (lines_changed('"acc": ', '"acc": NaN, "x": '), {}, "acc: found nan; expected a number from 0 to 1"),
        (lines_changed('"acc": ', '"acc": [1], "x": '), {}, "acc: found no number; expected a number from 0 to 1"),
        (lambda _: None, {"metric": None}, "metric: found acc, acc_norm; expected one, or the gate's `metric`"),
        (lambda _: None, {"metric": "f1"}, "metric: found acc, acc_norm; expected f1"),
        (lambda _: None, {"filter": "strict"}, "filter: found none; expected strict"),
        (lambda folder: change_results(folder, lambda said: said.pop("n-samples")), {}, "n-samples: field required"),
    ],
)
def test_what_is_not_whole_is_named_with_its_place(
    tmp_path: Path, broken: Callable[[Path], object], settings: dict[str, str], told: str
) -> None:
    folder = one_task(tmp_path, "choices")
    broken(folder)
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        evaluation_in(folder, EvalGate.model_validate({"task": "choices", "metric": "acc", **settings}))
    assert "\n" not in str(caught.value)


def evaluation(harness: str = "lm_eval 1", **scored: float) -> Evaluation:
    return Evaluation(
        harness=harness, questions={name: QuestionScore(score=score, doc_hash=name) for name, score in scored.items()}
    )


def test_arms_are_paired_by_question_and_only_where_they_were_asked_the_same() -> None:
    stable, canary = evaluation(a=1, b=0.5), evaluation(b=0, a=1)
    assert difference(stable, canary) == ""
    assert [(pair.stable.score, pair.canary.score) for pair in pairs_of(stable, canary) if pair.stable and pair.canary]
    assert (
        difference(stable, evaluation("lm_eval 2", a=1, b=1))
        == "stable was asked by lm_eval 1, the canary by lm_eval 2"
    )
    assert difference(stable, evaluation(a=1)) == "question b was asked of one arm only"
    other = Evaluation(
        harness="lm_eval 1", questions={"a": QuestionScore(score=1, doc_hash="z"), "b": canary.questions["b"]}
    )
    assert difference(stable, other) == "question a is another for the canary than for stable"
