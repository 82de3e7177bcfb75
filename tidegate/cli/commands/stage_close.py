"""`tidegate stage close`: the end of a delivery that was carried step by step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pipelines.model import EXIT_CODES, Ending, Result
from pipelines.recorded import outcome_of
from pipelines.single import close
from pipelines.spec import Delivery
from pipelines.trust import Trusted
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.model import DeliverySummary
from rollouts.watchdog import end_lease
from tidegate.cli.compose import open_deliveries
from tidegate.cli.joined import Joined, attach_report, context_for, joined, require_fleet, shown
from tidegate.cli.output import note, print_json, say
from tidegate.cli.progress import Progress
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.spec import load_spec


@dataclass(frozen=True)
class Closing:
    """Which delivery is meant: by its id, or by the key of whoever opened it."""

    delivery: str | None
    key: str | None
    spec: Path


def run(closing: Closing, state: Path, tracking_uri: str | None, trusted: Trusted, *, as_json: bool) -> int:
    """Close; returns the exit code that tells the ending."""
    deliveries = open_deliveries(state, tracking_uri)
    delivery = _meant(closing, deliveries)
    if delivery is None:
        note(f"nothing to close: no delivery was opened with the key {closing.key}")
        return int(ExitCode.DELIVERED)
    summary = deliveries.summary(delivery)
    ledger = deliveries.join(delivery)
    if summary.ended is not None:
        result = outcome_of(ledger.recorded(), delivery) or _closed_by_others(summary)
    else:
        patience = timedelta(seconds=summary.patience_seconds)
        here = joined(deliveries, ledger, state, tracking_uri, trusted, patience=patience)
        result = asyncio.run(_close(here, shown(ledger.recorded())))
        attach_report(here)
        end_lease(state)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        say(f"{result.ending}: {result.reason}")
    return int(result.exit_code)


def _meant(closing: Closing, deliveries: MlflowDeliveries) -> str | None:
    """The delivery's id; None when nothing was opened with the key."""
    if closing.delivery:
        return closing.delivery
    if not closing.key:
        raise UsageError("which delivery?", hint="name it by --delivery, or by --key and its spec")
    model = load_spec(closing.spec, Delivery).model.name
    # The newest: a workflow that is retried after its end opens another delivery with the same key.
    return next((each.id for each in deliveries.deliveries(model) if each.key == closing.key), None)


async def _close(here: Joined, progress: Progress) -> Result:
    await require_fleet(here)
    with progress:
        async with context_for(here, [progress]) as context:
            return await close(context)


def _closed_by_others(summary: DeliverySummary) -> Result:
    ending = Ending(summary.outcome or Ending.INTERRUPTED)
    return Result(delivery=summary.id, ending=ending, reason=summary.reason or "", exit_code=EXIT_CODES[ending])
