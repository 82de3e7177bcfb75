"""Builds what a delivery uses besides its backends: readers of answers, notifications."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gates.analyses.agreement import Likeness
from gates.answers.golden import scorers_of
from gates.judge.pair_judge import PairJudge
from gates.model import Scorer
from gates.ports import Embedder, LanguageDetector, LogLikelihood
from pipelines.model import Plan
from pipelines.ports import DeliveryLedger
from pipelines.run.context import Readers
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from pipelines.spec.sections import NotifySpec
from pipelines.views.notifications import NotificationChannel, Notifier, Sender, subject_of
from tidegate.app.process import note, note_sink

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
    from gates.adapters.text_models import WordEmbeddings

    return WordEmbeddings()


def _languages() -> LanguageDetector:
    from gates.adapters.text_models import LanguageIds

    return LanguageIds()


def _likelihood() -> LogLikelihood:
    from gates.adapters.likelihood import EngineLikelihood

    return EngineLikelihood()


async def _judge(spec: Delivery, folder: Path) -> PairJudge:
    """A judge that has been asked of every answer that a person scored, if there are any."""
    from gates.adapters.judge import OpenAIJudge
    from gates.judge.control import load_labels

    settings = spec.gates.judge
    assert settings is not None, "the spec was read without settings for the judge gate"
    judge = PairJudge(settings, OpenAIJudge(settings, os.environ), seed=SEED)
    if settings.control.labels is not None:
        await judge.learn(load_labels(folder / settings.control.labels, settings.control))
    return judge


def notifier_for(notify: Sequence[NotifySpec], plan: Plan, ledger: DeliveryLedger) -> Notifier:
    """A listener for the delivery's journal; to be entered as a context. Who has no address here is not told."""
    places = places_of(notify)
    for each in notify:
        if each.variable not in {place.variable for place in places}:
            note(f"notify: {each.variable} is not set: no notifications to {each.form}")
    return Notifier(subject_of(plan, ledger.delivery), places, http_sender(), note_sink(), heads=lambda: ledger.heads)


def places_of(notify: Sequence[NotifySpec], environment: Mapping[str, str] = os.environ) -> list[NotificationChannel]:
    """Those whose variable is set."""
    return [
        NotificationChannel(form=each.form, variable=each.variable, url=environment[each.variable], about=each.about)
        for each in notify
        if environment.get(each.variable)
    ]


def http_sender() -> Sender:
    """Sends by HTTP; what that takes is imported with the first message."""
    return _Lazily()


class _Lazily:
    def send(self, url: str, body: Mapping[str, object]) -> None:
        from pipelines.adapters.notify_http import HttpSender

        HttpSender().send(url, body)
