"""`tidegate notify`: proves that the addresses are right, or shows what would be said there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from pipelines.adapters.services import http_sender, places_of
from pipelines.adapters.specs import read_spec
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import NotifySpec
from pipelines.views.notifications import (
    BODIES,
    DeliverySubject,
    Notification,
    NotificationKind,
    NotTaken,
    Sender,
    deliver_message,
)
from pipelines.views.samples import samples
from tidegate.cli.output import Output, print_data, say
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, UsageError


def try_notifications(
    spec_path: Path,
    *,
    dry_run: bool,
    output: Output,
    sender: Sender | None = None,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Send or show; returns 4 when something was not taken.

    Raises:
        UsageError: the spec configures no notifications, or a variable is not set.
    """
    spec = read_spec(spec_path)
    if not spec.notify:
        raise UsageError(
            f"{spec_path} configures no notifications", hint="add `notify: [{slack: {url_from_env: NAME}}]`"
        )
    if dry_run:
        return _show(spec, environment, output=output)
    unset = [each.variable for each in spec.notify if not environment.get(each.variable)]
    if unset:
        raise UsageError(f"not set: {', '.join(unset)}", hint="or use --dry-run, which needs none")
    return _try(spec, sender or http_sender(), environment, output=output)


def _show(spec: Delivery, environment: Mapping[str, str], *, output: Output) -> int:
    told = [
        {
            "to": each.form,
            "url_from_env": each.variable,
            "set": bool(environment.get(each.variable)),
            "about": str(news.kind),
            "body": BODIES[each.form](news),
        }
        for each in spec.notify
        for news in _about(each, spec)
    ]
    if output.is_data:
        print_data(told, output)
        return 0
    for message in told:
        missing = "" if message["set"] else ", which is not set"
        say(f"{message['to']} at ${message['url_from_env']}{missing}: {message['about']}")
        print(json.dumps(message["body"], indent=2, ensure_ascii=False))
    return 0


def _about(place: NotifySpec, spec: Delivery) -> Iterator[Notification]:
    subject = DeliverySubject(
        delivery="0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f",
        model=spec.model.name,
        version="7",
        champion="6",
        regions=spec.regions.names,
    )
    yield from (news for news in samples(subject, SystemClock().now()) if news.kind in place.about)


def _try(spec: Delivery, sender: Sender, environment: Mapping[str, str], *, output: Output) -> int:
    told: list[dict[str, object]] = []
    for place in places_of(spec.notify, environment):
        problem = None
        try:
            deliver_message(place, _test(spec, SystemClock().now()), sender)
        except NotTaken as error:
            problem = str(error)
        told.append({"to": place.form, "url_from_env": place.variable, "problem": problem})
    if output.is_data:
        print_data(told, output)
    for each in told if not output.is_data else ():
        say(f"{each['to']} at ${each['url_from_env']}: {each['problem'] or 'taken'}")
    return int(ExitCode.OUTSIDE if any(each["problem"] for each in told) else ExitCode.DELIVERED)


def _test(spec: Delivery, at: datetime) -> Notification:
    subject = DeliverySubject(delivery="none", model=spec.model.name, version="none", champion="none", regions=())
    return Notification(
        kind=NotificationKind.TEST, at=at, subject=subject, headline=f"A test of tidegate, for {spec.metadata.name}"
    )
