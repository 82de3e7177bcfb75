"""The golden set: prompts with the answers a good version gives, one JSON object per line, and their scores.

An answer is scored against the expected one, 0 to 1, after the same normalisation on both sides.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, JsonValue

from gates.json_lines import read_json_lines
from gates.model import Scorer
from gates.text import similarity, words_of
from tidegate.core.model import SpecModel
from tidegate.core.spec import Problem, SpecError
from tidegate.core.threads import call_in_thread

if TYPE_CHECKING:
    import jsonschema_rs

_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def _number(text: str) -> float:
    """Commas may part its thousands; NaN where it is none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def _contains(answer: str, expected: str) -> float:
    needle, words = words_of(expected), words_of(answer)
    starts = range(len(words) - len(needle) + 1)
    return float(bool(needle) and any(words[start : start + len(needle)] == needle for start in starts))


def _exact(answer: str, expected: str) -> float:
    return float(words_of(answer) == words_of(expected))


def _numeric(answer: str, expected: str) -> float:
    """Whether the last number of the answer is the expected one: models restate the question first."""
    numbers = _NUMBER.findall(answer)
    return float(bool(numbers) and _number(numbers[-1]) == _number(expected))


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _validator(schema: Mapping[str, JsonValue]) -> jsonschema_rs.Validator:
    """What checks answers; fetches nothing.

    Raises:
        ValueError: when the schema is none, or refers to something outside itself.
    """
    # Most sets have no schema, and judging alone comes without it.
    import jsonschema_rs

    return jsonschema_rs.validator_for(dict(schema), offline=True)


def fits(answer: str, schema: Mapping[str, JsonValue]) -> float:
    """1 when the answer is JSON that the schema accepts, with nothing around it: its readers are as strict."""
    try:
        return float(_validator(schema).is_valid(json.loads(answer, parse_constant=_refuse_constant)))
    # A recursion error: an answer may be ten thousand brackets.
    except (ValueError, RecursionError):
        return 0.0


SCORERS: Mapping[Scorer, Callable[[str, str], float]] = {
    Scorer.CONTAINS: _contains,
    Scorer.EXACT: _exact,
    Scorer.NUMERIC: _numeric,
    Scorer.F1: similarity,
}


MOST_PROMPTS = 10_000
"""Lines of a golden set: each is asked of both versions, about half a second for a pair, before any user is served."""


class GoldenPrompt(SpecModel):
    """One line of a golden set."""

    # `schema` is taken: every pydantic model has a method of that name.
    model_config = ConfigDict(validate_by_alias=True, validate_by_name=True, serialize_by_alias=True)

    prompt: str = Field(min_length=1)
    expected: str = ""
    json_schema: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    """What a JSON answer must fit, in place of `expected`; no scorer is asked then."""
    scorer: Scorer | None = None
    """Instead of the gate's own."""
    max_tokens: int = Field(default=24, ge=1)

    def points(self, answer: str, gate: Scorer) -> float:
        """What an answer is worth, 0 to 1; `gate` is the scorer for lines that name none."""
        if self.json_schema is not None:
            return fits(answer, self.json_schema)
        return SCORERS[self.scorer or gate](answer, self.expected)


def load_golden(path: Path, scorer: Scorer = Scorer.CONTAINS) -> tuple[GoldenPrompt, ...]:
    """Read a golden set whose lines are scored by `scorer` where they name no other.

    Raises:
        SpecError: with every problem and its line, when there is one, or when the set is empty or too large.
    """
    lines, problems = read_json_lines(path, GoldenPrompt, most=MOST_PROMPTS)
    first: dict[str, int] = {}
    for at, entry in lines:
        if bool(entry.expected) == (entry.json_schema is not None):
            found = "both" if entry.expected else "nothing"
            problems.append(Problem(str(path), at, "expected", found, "one of `expected` and `schema`"))
        elif entry.json_schema is not None:
            try:
                _validator(entry.json_schema)
            except ValueError as error:
                found, expected = str(error).splitlines()[0], "a JSON schema that refers to nothing outside itself"
                problems.append(Problem(str(path), at, "schema", found, expected))
        elif (entry.scorer or scorer) is Scorer.NUMERIC and not math.isfinite(_number(entry.expected)):
            problems.append(Problem(str(path), at, "expected", repr(entry.expected), "a number for the numeric scorer"))
        # Scores are kept by prompt: the second would silently replace the first.
        if first.setdefault(entry.prompt, at) != at:
            once = f"each prompt once (first on line {first[entry.prompt]})"
            problems.append(Problem(str(path), at, "prompt", "the prompt twice", once))
    if problems:
        raise SpecError(sorted(problems, key=lambda problem: problem.line))
    return tuple(entry for _, entry in lines)


CONCURRENT_QUESTIONS = 4
"""For each engine: enough to batch, few enough not to crowd out users."""


async def ask_golden(
    golden: Sequence[GoldenPrompt], scorer: Scorer, ask: Callable[[GoldenPrompt], Awaitable[str]]
) -> dict[str, float]:
    """The scores of one engine's answers, by prompt."""
    limit = asyncio.Semaphore(CONCURRENT_QUESTIONS)

    async def limited(entry: GoldenPrompt) -> str:
        async with limit:
            return await ask(entry)

    texts = await asyncio.gather(*map(limited, golden))

    def scored() -> dict[str, float]:
        return {entry.prompt: entry.points(text, scorer) for entry, text in zip(golden, texts, strict=True)}

    return await call_in_thread(scored)
