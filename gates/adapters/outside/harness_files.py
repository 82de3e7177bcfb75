"""Reads what lm-evaluation-harness writes: `results_TIME.json`, and `samples_TASK_TIME.jsonl` of each task.

The results say how many questions there were and which numbers are better when they are lower; the samples have a line
for each question and filter, with the question's number, its hash, and each metric by name. Texts are not kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from gates.analyses.outside.answer import MOST_PAIRS
from gates.analyses.outside.evaluation import Evaluation, QuestionScore
from gates.analyses.outside.evaluation_spec import EvalGate
from tidegate.core.model import Value

SAMPLES = re.compile(r"samples_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[^_]*\.jsonl")
MOST_LINE_BYTES = 16 << 20
"""Of a question with all that was said to it."""


class _SampleCount(Value):
    model_config = ConfigDict(extra="ignore")

    effective: int


class _Results(Value):
    """What matters here of the results; the harness may say more."""

    model_config = ConfigDict(extra="ignore")

    counts: Mapping[str, _SampleCount] = Field(alias="n-samples")
    higher_is_better: Mapping[str, Mapping[str, bool | None]] = {}
    versions: Mapping[str, Any] = {}
    lm_eval_version: str = "unknown"


class _Line(Value):
    """A question of a task by one filter; metrics have keys of their own names, and texts are left out."""

    model_config = ConfigDict(extra="allow")

    doc_id: int
    doc_hash: str = ""
    filter: str = "none"
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Sample:
    """What is kept of a line."""

    place: str
    task: str
    line: _Line
    values: Mapping[str, object]
    """By metric; those that are no numbers are None."""

    @property
    def name(self) -> str:
        return f"{self.task}/{self.line.doc_id}"


def evaluation_in(folder: Path, settings: EvalGate) -> Evaluation:
    """The scores of all questions, of one metric and one filter.

    Raises:
        ValueError: the files are not there, not whole, or none of the harness's; names file, line and field.
    """
    results = _results(folder)
    samples = list(_samples(folder))
    if not samples:
        raise ValueError("it wrote no samples_TASK_TIME.jsonl; expected one of each task")
    filter_name = _chosen("filter", settings.filter, {each.line.filter for each in samples})
    samples = [each for each in samples if each.line.filter == filter_name]
    metric = _chosen("metric", settings.metric, {name for each in samples for name in each.line.metrics})
    _whole(samples, results)
    questions: dict[str, QuestionScore] = {}
    for each in samples:
        if each.name in questions:
            raise ValueError(f"{each.place}: doc_id: found {each.line.doc_id} a second time; expected it once")
        score = _score(each, metric)
        lower = results.higher_is_better.get(each.task, {}).get(metric) is False
        questions[each.name] = QuestionScore(score=1 - score if lower else score, doc_hash=each.line.doc_hash)
    tasks = ", ".join(f"{task} {results.versions.get(task, '?')}" for task in sorted({each.task for each in samples}))
    return Evaluation(harness=f"lm_eval {results.lm_eval_version} ({tasks})", questions=questions)


def _results(folder: Path) -> _Results:
    found = sorted(folder.rglob("results_*.json"))
    if len(found) != 1:
        raise ValueError(f"it wrote {len(found) or 'no'} results_TIME.json; expected one")
    try:
        return _Results.model_validate_json(found[0].read_bytes())
    except ValidationError as error:
        raise ValueError(f"{found[0].name}: {_first(error)}") from None


def _samples(folder: Path) -> Iterator[_Sample]:
    total = 0
    for path in sorted(folder.rglob("samples_*.jsonl")):
        matched = SAMPLES.fullmatch(path.name)
        if matched is None:
            raise ValueError(f"{path.name}: found that name; expected samples_TASK_TIME.jsonl")
        for at, line in enumerate(_lines(path), start=1):
            total += 1
            if total > MOST_PAIRS:
                raise ValueError(f"it wrote more than {MOST_PAIRS:,} lines of samples")
            yield _sample(f"{path.name}:{at}", matched["task"], line)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        # What is cut off is no JSON.
        while line := file.readline(MOST_LINE_BYTES):
            yield line


def _sample(place: str, task: str, text: bytes) -> _Sample:
    try:
        line = _Line.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{place}: {_first(error)}") from None
    numbers = {name: said for name, said in (line.model_extra or {}).items() if isinstance(said, bool | int | float)}
    values = dict.fromkeys(line.metrics) | numbers
    return _Sample(place, task, _Line(**line.model_dump(include=set(_Line.model_fields))), values)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place + ': ' if place else ''}{first['msg'].lower()}"


def _chosen(what: str, said: str | None, found: set[str]) -> str:
    known = ", ".join(sorted(found))
    if said is not None:
        if found and said not in found:
            raise ValueError(f"{what}: found {known}; expected {said}")
        return said
    if len(found) != 1:
        raise ValueError(f"{what}: found {known or 'none'}; expected one, or the gate's `{what}` to name it")
    return next(iter(found))


def _whole(samples: list[_Sample], results: _Results) -> None:
    counted = Counter(each.task for each in samples)
    for task in sorted(counted.keys() | results.counts.keys()):
        expected = results.counts[task].effective if task in results.counts else 0
        if counted[task] != expected:
            raise ValueError(f"samples of {task}: found {counted[task]} questions; expected {expected}")


def _score(sample: _Sample, metric: str) -> float:
    value = sample.values.get(metric)
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        found = "nothing" if metric not in sample.values else "no number" if value is None else value
        raise ValueError(f"{sample.place}: {metric}: found {found}; expected a number from 0 to 1")
    return float(value)
