"""Answers that people have scored: what a judge is measured by, one JSON object per line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from gates.evidence import Score
from gates.json_lines import read_json_lines
from gates.judge.spec import JudgeControl
from tidegate.core.model import SpecModel
from tidegate.core.spec import Problem, SpecError


class Label(SpecModel):
    """One line."""

    prompt: str = Field(min_length=1, repr=False)
    answer: str = Field(repr=False)
    score: Score
    """A person's, on the scale of the composite score."""


def load_labels(path: Path, settings: JudgeControl) -> tuple[Label, ...]:
    """Read labels that suffice for `settings`.

    Raises:
        SpecError: with every problem and its line, or when they are too few or too much alike to tell anything.
    """
    lines, problems = read_json_lines(path, Label)
    labels = tuple(label for _, label in lines)
    scores = [label.score for label in labels]
    if not problems and len(labels) < settings.min_asked:
        expected = f"at least {settings.min_asked}, as `min_asked` says"
        problems.append(Problem(str(path), 1, "", f"{len(labels)} labels", expected))
    if not problems and max(scores) - min(scores) <= settings.same_within:
        expected = f"good and bad answers, with scores that differ by more than {settings.same_within:g}"
        problems.append(Problem(str(path), 1, "score", "the same everywhere", expected))
    if problems:
        raise SpecError(problems)
    return labels


def beside_each_other(labels: Sequence[Label]) -> Iterator[tuple[Label, Label]]:
    """Pairs to put to a judge that scores two answers at a time: of one prompt, the odd one beside itself."""
    by_prompt: dict[str, list[Label]] = defaultdict(list)
    for label in labels:
        by_prompt[label.prompt].append(label)
    for same in by_prompt.values():
        for at in range(0, len(same), 2):
            yield same[at], same[min(at + 1, len(same) - 1)]
