"""What reads and judges answers; models are loaded when they are first used, but packages when they are built."""

from __future__ import annotations

import os
from pathlib import Path

from gates.judge.judge import Judge
from gates.judge.spec import JudgeGate
from gates.ports import Embedder, LanguageDetector, LogLikelihood

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


async def judge_of(settings: JudgeGate, folder: Path, paired: bool) -> Judge:
    """A judge of pairs of answers, or of single ones, that has been asked of those in `folder` that a person scored."""
    from gates.adapters.judge import OpenAIJudge
    from gates.judge.control import load_labels

    judge = Judge(settings, OpenAIJudge(settings, os.environ), seed=SEED)
    if settings.control.labels is not None:
        await judge.learn(load_labels(folder / settings.control.labels, settings.control), paired=paired)
    return judge
