"""`tidegate resume`: a delivery whose process died goes on here."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from pipelines.adapters.lock import delivery_lock
from pipelines.event_file import EventFile
from pipelines.journal import Listener
from pipelines.model import Result
from pipelines.resumption import resume
from pipelines.state import StateFolder
from rollouts.watchdog import end_lease
from tidegate.cli.compose import open_deliveries
from tidegate.cli.console import PlainConsole
from tidegate.cli.heir import Heir, entitled
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.joined import Joined, attach_report, context_for, joined, shown
from tidegate.cli.output import print_json
from tidegate.cli.progress import Progress
from tidegate.cli.view import summary


def run(delivery: str, state: Path, tracking_uri: str | None, heir: Heir, *, as_json: bool) -> int:
    """Carry the delivery to its end; returns the exit code that tells it."""
    # The lock first: whoever cannot carry it here must not keep another from it.
    with delivery_lock(StateFolder(state).lock):
        deliveries = open_deliveries(state, tracking_uri)
        resumed = entitled(heir, deliveries, delivery)
        ledger = deliveries.take_over(delivery)
        if resumed is not None:
            ledger.append(resumed)
        here = joined(deliveries, ledger, state, tracking_uri, heir.trusted, patience=timedelta(0))
        progress = shown(ledger.recorded())
        # The lock is the sign of life from here on.
        end_lease(here.state.root)
        result = asyncio.run(_resumed(here, progress))
        attach_report(here)
    report = here.folder / "report.html"
    if as_json:
        print_json(result.model_dump(mode="json") | {"report": str(report)})
    else:
        PlainConsole().print(summary(progress.story))
        print(f"report: {report}")
    return int(result.exit_code)


async def _resumed(here: Joined, progress: Progress) -> Result:
    listeners: list[Listener] = [progress]
    events = EventFile(here.folder / "events.jsonl")
    # Only where it began: elsewhere the ledger has more of the delivery than a file that begins now.
    if events.path.exists():
        listeners.insert(0, events)
    with progress:
        async with cancelled_by_signals(), context_for(here, listeners) as context:
            return await resume(context)
