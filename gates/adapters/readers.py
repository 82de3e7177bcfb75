"""What reads and judges answers; models are loaded when they are first used, but packages when they are built."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from gates.judge.answer_judge import AnswerJudge
from gates.judge.controlled import ControlledJudge
from gates.judge.pair_judge import PairJudge
from gates.judge.spec import JudgeGate
from gates.ports import Embedder, LanguageDetector, LogLikelihood

Judge = TypeVar("Judge", bound=ControlledJudge)

SEED = 20261121
"""Of a judge's orders and samples; fixed, so that a delivery can be done again."""


def embedder() -> Embedder:
    """Of word vectors."""
    from gates.adapters.text_models import WordEmbeddings

    return WordEmbeddings()


def languages() -> LanguageDetector:
    """Of answers and questions."""
    from gates.adapters.text_models import LanguageIds

    return LanguageIds()


def likelihood() -> LogLikelihood:
    """Asks the engines themselves."""
    from gates.adapters.likelihood import EngineLikelihood

    return EngineLikelihood()


async def pair_judge(settings: JudgeGate, folder: Path) -> PairJudge:
    """A judge that has been asked of every answer in `folder` that a person scored, if there are any."""
    return await _taught(PairJudge, settings, folder)


async def answer_judge(settings: JudgeGate, folder: Path) -> AnswerJudge:
    """The same, of answers that are scored each by itself."""
    return await _taught(AnswerJudge, settings, folder)


async def _taught(kind: type[Judge], settings: JudgeGate, folder: Path) -> Judge:
    from gates.adapters.judge import OpenAIJudge
    from gates.judge.control import load_labels

    judge = kind(settings, OpenAIJudge(settings, os.environ), seed=SEED)
    if settings.control.labels is not None:
        await judge.learn(load_labels(folder / settings.control.labels, settings.control))
    return judge
