"""Who is told of a delivery, with the addresses that this process's environment has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pipelines.model import Plan
from pipelines.notify.news import subject_of
from pipelines.notify.outbox import Outbox, Place, Sender
from pipelines.notify.spec import NotifySpec
from tidegate.cli.output import note


def outbox_for(notify: Sequence[NotifySpec], plan: Plan, delivery: str) -> Outbox:
    """A listener for the delivery's journal; to be entered as a context. Who has no address here is not told."""
    places = places_of(notify)
    for each in notify:
        if each.variable not in {place.variable for place in places}:
            note(f"notify: {each.variable} is not set, so that {each.form} is not told")
    return Outbox(subject_of(plan, delivery), places, http_sender(), note)


def places_of(notify: Sequence[NotifySpec], environment: Mapping[str, str] = os.environ) -> list[Place]:
    """Those whose variable is set."""
    return [
        Place(form=each.form, variable=each.variable, url=environment[each.variable], about=each.about)
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
