"""Asks a command of the team's about both arms: once, in the offline stage, before users meet the version.

The command gets a question and gives an answer: a verdict, or scores of both arms, question by question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from gates.analyses.base import GateSettings, StageUse
from gates.analyses.quality import QualityGate, judge_quality
from gates.evidence.batch import PairedAnswer
from gates.model import AnswerScores, GateOutcome, Sample, Scores, Share, Verdict
from tidegate.core.model import SpecConflict, Value, at_odds
from tidegate.core.units import Duration

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FACTS = re.compile(r"TIDEGATE_(GATE|STAGE|DELIVERY|REGION|MODEL|(STABLE|CANARY)_(URL|VERSION))")
"""Variables that a command gets anyway."""


def _variable(name: object) -> object:
    """Not quoted where it is no name: it may be the secret itself."""
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise at_odds("something else", "the name of an environment variable; the secret itself stays outside")
    return name


def _relative(path: Path) -> Path:
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("a path below the spec's folder")
    return path


class CommandGate(GateSettings):
    """A command of yours says whether the canary is fine, or brings scores of both arms."""

    name = "command"
    stages = (StageUse("offline"),)

    run: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Program and arguments. No shell reads them; `[sh, -c, "..."]` is one. It runs in the spec's folder."""
    files: tuple[Annotated[Path, AfterValidator(_relative)], ...] = ()
    """What it needs of the spec's folder: kept with the delivery, and brought to where a step runs."""
    variables: tuple[str, ...] = ()
    """Names of environment variables that it gets besides the usual ones; their values are masked in what is kept."""
    within: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0), le=timedelta(days=1))
    """For all tries together."""
    retries: int = Field(default=2, ge=0, le=10)
    """Of a question that found something not there."""
    max_drop: Share = 0.03
    """Where it answers with scores: how far the canary's mean, 0 to 1, may be below the stable's."""
    min_pairs: Sample = 10
    """Where it answers with scores: questions with a score of both arms."""

    @field_validator("variables", mode="before")
    @classmethod
    def _names(cls, said: object) -> object:
        return [_variable(each) for each in said] if isinstance(said, list | tuple) else said

    def contradictions(self) -> Iterator[SpecConflict]:
        """A variable that would hide a fact."""
        for index, name in enumerate(self.variables):
            if FACTS.fullmatch(name):
                yield SpecConflict(("variables", index), name, "another name: that one tells it of the delivery")


MOST_REASON = 500
MOST_PAIRS = 100_000


class AskedArm(Value):
    """One arm, as a command can ask it."""

    version: str
    url: str
    """Without `/v1`, below which it speaks OpenAI's API."""
    engine: str
    """A digest of what serves: equal where the same files are served with the same settings."""


class Question(Value):
    """What a command reads from its standard input, as JSON."""

    gate: str
    delivery: str
    stage: str
    region: str
    model: str
    """Under which name both arms serve."""
    stable: AskedArm
    canary: AskedArm

    def variables(self) -> Mapping[str, str]:
        """The same as environment variables."""
        facts = {name: getattr(self, name) for name in ("gate", "delivery", "stage", "region", "model")}
        for role, arm in {"stable": self.stable, "canary": self.canary}.items():
            facts |= {f"{role}_url": arm.url, f"{role}_version": arm.version}
        return {f"TIDEGATE_{name.upper()}": value for name, value in facts.items()}


def _one_line(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:MOST_REASON]


Numbers = Mapping[
    Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], Annotated[float, Field(allow_inf_nan=False)]
]


class Answer(Value):
    """A verdict, or evidence: exactly one of `outcome` and `pairs`."""

    outcome: Literal["pass", "fail", "inconclusive"] | None = None
    reason: Annotated[str, AfterValidator(_one_line)] = ""
    numbers: Numbers = Field(default={}, max_length=50)
    pairs: Annotated[tuple[PairedAnswer, ...], Field(max_length=MOST_PAIRS)] = ()
    """Question by question, as in a batch of evidence; what counts is each arm's `score`."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Answer:
        if (self.outcome is None) == (not self.pairs):
            raise ValueError("exactly one of outcome, pairs")
        return self


class Reply(Value):
    """An answer, and what is kept of how it was given."""

    answer: Answer
    output: str
    """Without any secret."""


def answer_in(text: str | bytes) -> Answer:
    """The answer that a JSON document is.

    Raises:
        ValueError: it is none; says what is wrong, without quoting it.
    """
    try:
        return Answer.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place + ': ' if place else ''}{first['msg']}") from None


OUTCOMES = {str(outcome): outcome for outcome in GateOutcome}


def judge_answer(gate: str, settings: CommandGate, answer: Answer, *, rollback: float) -> Verdict:
    """The verdict of others as it is; of scores as the quality gate's of a set that may be a sample.

    `rollback` is the gate's share of the chance that a version that is no worse is rolled back. It holds for scores:
    how often somebody else's verdict is wrong, nobody here knows.
    """
    if answer.outcome is not None:
        reason = answer.reason or f"the answer is {answer.outcome}"
        return Verdict(gate=gate, outcome=OUTCOMES[answer.outcome], reason=reason, numbers=answer.numbers)
    scores = AnswerScores(stable=_scores(answer.pairs, "stable"), canary=_scores(answer.pairs, "canary"))
    as_golden = QualityGate(max_drop=settings.max_drop, min_prompts=settings.min_pairs)
    verdict = judge_quality(as_golden, scores, sampled=rollback, prompts="questions")
    return verdict.model_copy(update={"gate": gate, "numbers": {**answer.numbers, **verdict.numbers}})


def _scores(pairs: Sequence[PairedAnswer], role: str) -> Scores:
    replies = {str(index): getattr(pair, role) for index, pair in enumerate(pairs)}
    return Scores(by_prompt={key: reply.score for key, reply in replies.items() if reply and reply.score is not None})
