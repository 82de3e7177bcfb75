"""Builds what reads answers for more than their words: embeddings, languages, likelihoods, judges."""

from __future__ import annotations

import os
from pathlib import Path

from gates.answers.golden import scorers_of
from gates.judge.pair_judge import PairJudge
from gates.ports import Embedder, LanguageDetector, LogLikelihood
from gates.spec import Likeness, Scorer
from pipelines.context import Readers
from pipelines.prompts import golden_set
from pipelines.spec import Delivery

SEED = 20261121
"""Of a judge's orders and samples; fixed, so that a delivery can be done again."""


def readers_for(spec: Delivery, folder: Path) -> Readers:
    """Only what the spec asks for: models are loaded when they are first used, but packages when they are built."""
    gates = spec.gates
    scorers = scorers_of(golden_set(spec, folder), gates.quality.scorer) if gates.quality else frozenset()
    by_meaning = gates.agreement is not None and gates.agreement.likeness is Likeness.MEANING
    languages = gates.agreement is not None and gates.agreement.min_same_language is not None
    return Readers(
        embedder=_embedder() if by_meaning or Scorer.SEMANTIC in scorers else None,
        languages=_languages() if languages else None,
        likelihood=_likelihood() if Scorer.LOG_LIKELIHOOD in scorers else None,
        judges=None if gates.judge is None else lambda: _judge(spec, folder),
    )


def _embedder() -> Embedder:
    from gates.adapters.embeddings import WordEmbeddings

    return WordEmbeddings()


def _languages() -> LanguageDetector:
    from gates.adapters.language import LanguageIds

    return LanguageIds()


def _likelihood() -> LogLikelihood:
    from gates.adapters.likelihood import EngineLikelihood

    return EngineLikelihood()


async def _judge(spec: Delivery, folder: Path) -> PairJudge:
    """A judge that has been asked of every answer that a person scored, if there are any."""
    from gates.adapters.judge import OpenAIJudge
    from gates.judge.labels import load_labels

    settings = spec.gates.judge
    assert settings is not None, "the spec was read without settings for the judge gate"
    judge = PairJudge(settings, OpenAIJudge(settings, os.environ), seed=SEED)
    if settings.control.labels is not None:
        await judge.learn(load_labels(folder / settings.control.labels, settings.control))
    return judge
