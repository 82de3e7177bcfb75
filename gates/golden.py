"""The golden set: prompts with the answers a good version gives, one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from gates.model import Scores
from gates.scoring import score
from gates.spec import Scorer
from tidegate.core.model import SpecModel
from tidegate.core.spec import Problem, SpecError


class GoldenPrompt(SpecModel):
    """One line of a golden set."""

    prompt: str = Field(min_length=1)
    expected: str = Field(min_length=1)
    scorer: Scorer | None = None
    """Instead of the gate's own."""
    max_tokens: int = Field(default=24, ge=1)

    @model_validator(mode="after")
    def _number_expected(self) -> GoldenPrompt:
        if self.scorer is Scorer.NUMERIC:
            try:
                float(self.expected.replace(",", ""))
            except ValueError as error:
                raise ValueError("a number in `expected` for the numeric scorer") from error
        return self


def load_golden(path: Path) -> tuple[GoldenPrompt, ...]:
    """Read a golden set.

    Raises:
        SpecError: with every problem and its line, when there is one, or when the set is empty.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Problem(str(path), 1, "", "no readable text", "a JSON object per line")]) from error
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    prompts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        entry = _read(line, str(path), number, problems)
        if entry and entry.prompt in seen:
            first = f"each prompt once (first on line {seen[entry.prompt]})"
            # Scores are kept by prompt: the second would silently replace the first.
            problems.append(Problem(str(path), number, "prompt", "the prompt twice", first))
        if entry:
            seen.setdefault(entry.prompt, number)
            prompts.append(entry)
    if not prompts and not problems:
        problems.append(Problem(str(path), 1, "", "no prompts", "at least one"))
    if problems:
        raise SpecError(problems)
    return tuple(prompts)


def score_answers(golden: tuple[GoldenPrompt, ...], answers: Mapping[str, str], scorer: Scorer) -> Scores:
    """Score what one version answered, by prompt; a prompt without an answer is left out, not 0."""
    return Scores(
        by_prompt={
            entry.prompt: score(entry.scorer or scorer, answers[entry.prompt], entry.expected)
            for entry in golden
            if entry.prompt in answers
        }
    )


def _read(line: str, file: str, number: int, problems: list[Problem]) -> GoldenPrompt | None:
    try:
        data: Any = json.loads(line)
        return GoldenPrompt.model_validate(data)
    except json.JSONDecodeError as error:
        problems.append(Problem(file, number, "", f"{error.msg.lower()} at column {error.colno}", "a JSON object"))
    except ValidationError as error:
        for detail in error.errors():
            path = ".".join(str(part) for part in detail["loc"])
            found = "nothing" if detail["type"] == "missing" else repr(detail["input"])
            expected = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            expected = "a value here" if detail["type"] == "missing" else expected
            problems.append(Problem(file, number, path, found, expected))
    return None
