"""`tidegate stage close`: the end of a delivery that was carried step by step."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from pipelines.model import EXIT_CODES, Ending, Result
from pipelines.recorded import outcome_of
from pipelines.single import close
from registry.model import DeliverySummary
from rollouts.watchdog import end_lease
from tidegate.cli.commands.report import Recorded, write_report
from tidegate.cli.compose import open_deliveries
from tidegate.cli.joined import Joined, context_for, joined, require_fleet, shown
from tidegate.cli.output import note, print_json
from tidegate.core.errors import TidegateError


def run(delivery: str, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Close; returns the exit code that tells the ending."""
    deliveries = open_deliveries(state, tracking_uri)
    summary = deliveries.summary(delivery)
    ledger = deliveries.join(delivery)
    if summary.ended is not None:
        result = outcome_of(ledger.recorded(), delivery) or _closed_by_others(summary)
    else:
        patience = timedelta(seconds=summary.patience_seconds)
        here = joined(deliveries, ledger, state, tracking_uri, patience=patience)
        result = asyncio.run(_close(here))
        report(here)
        end_lease(state)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        print(f"{result.ending}: {result.reason}")
    return int(result.exit_code)


async def _close(here: Joined) -> Result:
    await require_fleet(here)
    progress = shown(here.ledger.recorded())
    with progress:
        async with context_for(here, [progress]) as context:
            return await close(context)


def report(here: Joined) -> None:
    """Write the report and keep it with the delivery. The ledger has closed: nothing may undo that any more."""
    target = here.folder / "report.html"
    source = Recorded(here.ledger.recorded())
    write_report(here.spec, here.state, [(here.ledger.delivery, source)], target)
    try:
        here.ledger.attach(target)
    except TidegateError as error:
        note(f"the report is at {target}, and not with the delivery: {error}")


def _closed_by_others(summary: DeliverySummary) -> Result:
    ending = Ending(summary.outcome or Ending.INTERRUPTED)
    return Result(delivery=summary.id, ending=ending, reason=summary.reason or "", exit_code=EXIT_CODES[ending])
