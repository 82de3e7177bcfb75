"""What a harness found of one arm, question by question, and the pairs that two arms make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from gates.analyses.outside.answer import MOST_PAIRS
from gates.evidence.batch import PairedAnswer, PairedReply, Score
from tidegate.core.model import Value


class QuestionScore(Value):
    """Of one question."""

    score: Score
    doc_hash: str = ""
    """Of the question's text and answer; empty where nobody says."""


class Evaluation(Value):
    """One arm's scores."""

    harness: str
    """What asked and scored: its version, and those of its tasks."""
    questions: Annotated[Mapping[str, QuestionScore], Field(min_length=1, max_length=MOST_PAIRS)]
    """By task and number, as `gsm8k/12`."""


def difference(stable: Evaluation, canary: Evaluation) -> str:
    """Why two arms cannot be compared question by question, because they were not asked the same; empty if they can."""
    if stable.harness != canary.harness:
        return f"stable was asked by {stable.harness}, the canary by {canary.harness}"
    for name, asked in stable.questions.items():
        other = canary.questions.get(name)
        if other and other.doc_hash != asked.doc_hash:
            return f"question {name} is another for the canary than for stable"
    if alone := sorted(stable.questions.keys() ^ canary.questions.keys()):
        return f"question {alone[0]} was asked of one arm only"
    return ""


def pairs_of(stable: Evaluation, canary: Evaluation) -> tuple[PairedAnswer, ...]:
    """Question by question, in the order of their names."""
    return tuple(
        PairedAnswer(stable=PairedReply(score=asked.score), canary=PairedReply(score=canary.questions[name].score))
        for name, asked in sorted(stable.questions.items())
    )
