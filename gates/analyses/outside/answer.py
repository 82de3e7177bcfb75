"""The question that is asked outside, the answer to it, and what a gate makes of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, Field, ValidationError, model_validator

from gates.analyses.outside.evaluation_spec import EvalGate
from gates.analyses.outside.spec import AskedOutside
from gates.analyses.quality import QualityGate, judge_quality, quality_forecast
from gates.evidence.batch import PairedAnswer
from gates.model import AnswerScores, GateOutcome, Scores, Verdict
from gates.traffic import GateForecast
from tidegate.core.model import Value

MOST_REASON = 500
MOST_PAIRS = 100_000


class AskedArm(Value):
    """One arm, as somebody outside can ask it."""

    version: str
    url: str
    """Without `/v1`, below which it speaks OpenAI's API."""
    engine: str
    """A digest of what serves: equal where the same files are served with the same settings."""


class Question(Value):
    """What is sent: the JSON of a webhook's request, and of a command's standard input."""

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

    outcome: Literal["pass", "fail", "running", "inconclusive"] | None = None
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


class OutsideSource(Protocol):
    """Who is asked."""

    async def ask(self, question: Question, *, seconds: float) -> Reply:
        """Ask once; `seconds` is what is left of the gate's time.

        Raises:
            NotAnswered: there is no answer, or none that can be read.
        """
        ...


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


def judge_answer(gate: str, settings: AskedOutside, answer: Answer, *, rollback: float) -> Verdict:
    """The verdict of others as it is; of scores as the quality gate's of a set that may be a sample.

    `rollback` is the gate's share of the chance that a version that is no worse is taken back. It holds for scores: how
    often somebody else's verdict is wrong, nobody here knows.
    """
    if answer.outcome is not None:
        reason = answer.reason or f"the answer is {answer.outcome}"
        return Verdict(gate=gate, outcome=OUTCOMES[answer.outcome], reason=reason, numbers=answer.numbers)
    scores = AnswerScores(stable=_scores(answer.pairs, "stable"), canary=_scores(answer.pairs, "canary"))
    verdict = judge_quality(_as_golden(settings), scores, sampled=rollback, prompts="questions")
    return verdict.model_copy(update={"gate": gate, "numbers": {**answer.numbers, **verdict.numbers}})


def eval_forecast(gate: str, settings: EvalGate, *, rollback: float) -> GateForecast:
    """What a task can show, by its `limit`; how many questions it has, only the harness knows."""
    found = quality_forecast(_as_golden(settings), prompts=settings.limit, sampled=rollback, unit="questions")
    return found.model_copy(update={"gate": gate})


def _as_golden(settings: AskedOutside) -> QualityGate:
    return QualityGate(max_drop=settings.max_drop, min_prompts=settings.min_pairs)


def _scores(pairs: Sequence[PairedAnswer], role: str) -> Scores:
    replies = {str(index): getattr(pair, role) for index, pair in enumerate(pairs)}
    return Scores(by_prompt={key: reply.score for key, reply in replies.items() if reply and reply.score is not None})
