"""Builds what a delivery uses besides its backends: readers of answers, and notifications."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from gates.adapters.judge import judge_of
from gates.analyses.drift import DriftGate, Feature
from gates.judge.spec import JudgeGate
from pipelines.model import Plan
from pipelines.ports import Listener
from pipelines.run.context import Readers
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import NotifySpec
from pipelines.views.notifications import Body, NotificationChannel, NotTaken, notified, subject_of
from registry.ledger import MlflowLedger
from tidegate.core.process import note

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 5.0
TOO_MANY = 429
NO_URL = "the variable holds no http or https URL"

# It logs the URL of every request at the level INFO.
logging.getLogger("httpx").addFilter(lambda record: record.levelno >= logging.WARNING)


def send_by_http(url: str, body: Body, transport: httpx.BaseTransport | None = None) -> None:
    """A `Sender`: posts JSON once. It follows no redirect: the body is for the address that was named.

    Raises:
        NotTaken: no answer, or one that is no success.
    """
    # Not above: few deliveries notify anybody, and a rollback is in a hurry.
    import httpx

    try:
        with httpx.Client(transport=transport, timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            status = client.post(url, json=body).status_code
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
        again, reason = False, NO_URL
    except httpx.TransportError as error:
        again, reason = True, f"no answer ({type(error).__name__})"
    else:
        if 200 <= status < 300:
            return
        again, reason = status == TOO_MANY or status >= 500, f"answered {status}"
    # Raised outside, so that no error that holds the address is chained to it.
    raise NotTaken(reason, again=again)


def readers_for(spec: Delivery) -> Readers:
    """Only what the spec asks for: models are loaded when they are first used, but packages when they are built."""
    judge, drift = spec.gates.only(JudgeGate), spec.gates.only(DriftGate)
    languages = None
    if drift and Feature.LANGUAGE in drift.features:
        from gates.adapters.text_models import LanguageIds

        languages = LanguageIds()
    return Readers(languages=languages, judges=partial(judge_of, judge) if judge else None)


def notified_of(
    notify: Sequence[NotifySpec], plan: Plan, ledger: MlflowLedger
) -> AbstractContextManager[Sequence[Listener]]:
    """Listeners for the delivery's journal within the context. Who has no address here is not told."""
    places = places_of(notify)
    for each in notify:
        if each.variable not in {place.variable for place in places}:
            note(f"notify: {each.variable} is not set: no notifications to {each.form}")
    return notified(subject_of(plan, ledger.delivery), places, send_by_http, note, heads=lambda: ledger.heads)


def places_of(notify: Sequence[NotifySpec], environment: Mapping[str, str] = os.environ) -> list[NotificationChannel]:
    """Those whose variable is set."""
    return [
        NotificationChannel(form=each.form, variable=each.variable, url=environment[each.variable], about=each.about)
        for each in notify
        if environment.get(each.variable)
    ]
