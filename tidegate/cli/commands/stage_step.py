"""`tidegate stage STEP`: one step of a delivery."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from pipelines.model import StageName, Step
from pipelines.recorded import done_steps, plan_of, step_of
from pipelines.single import Taken, take_step
from pipelines.trust import Trusted
from tidegate.cli.compose import open_deliveries
from tidegate.cli.interrupt import cancelled_by_signals
from tidegate.cli.joined import Joined, context_for, joined, require_fleet, shown
from tidegate.cli.output import note, print_json
from tidegate.cli.progress import Progress
from tidegate.core.errors import ExitCode, Refused, UsageError

AFTERWARDS = "`tidegate stage close` takes the regions back"


def step_id(step: str, *, region: str | None, weight: int | None, wave: int | None) -> str:
    """The id that is meant: as it is written, or put together from a stage's name and where."""
    if (region, weight, wave) == (None, None, None):
        return step
    if step not in list(StageName):
        raise UsageError(f"`{step}` is no stage", hint=f"one of: {', '.join(StageName)}; or a step's whole id")
    return Step(stage=StageName(step), region=region, weight=weight, wave=wave or 0).id


def run(wanted: str, delivery: str, state: Path, tracking_uri: str | None, trusted: Trusted, *, as_json: bool) -> int:
    """Do the step; returns the exit code that tells what became of it."""
    deliveries = open_deliveries(state, tracking_uri)
    summary = deliveries.summary(delivery)
    ledger = deliveries.join(delivery)
    events = ledger.recorded()
    step = step_of(plan_of(events), wanted)
    if step.id in done_steps(events):
        return _told(Taken(step=step.id, done=True, reason="done before", exit_code=ExitCode.DELIVERED), as_json)
    if summary.ended is not None:
        raise Refused(f"delivery {delivery} is over: {summary.outcome}: {summary.reason}")
    if not summary.patience_seconds:
        raise Refused(
            f"delivery {delivery} is carried by process {summary.pid} on {summary.host}",
            hint="`tidegate stage` is for deliveries that `tidegate stage open` opened",
        )
    patience = timedelta(seconds=summary.patience_seconds)
    here = joined(deliveries, ledger, state, tracking_uri, trusted, patience=patience)
    return _told(asyncio.run(_do(here, step.id, shown(events))), as_json)


async def _do(here: Joined, step: str, progress: Progress) -> Taken:
    await require_fleet(here)
    with progress:
        async with (
            cancelled_by_signals(AFTERWARDS),
            context_for(here, [progress], hands_on=True) as context,
        ):
            return await take_step(context, step)


def _told(taken: Taken, as_json: bool) -> int:
    if as_json:
        print_json(taken.model_dump(mode="json"))
    else:
        note(f"{taken.step}: {taken.reason}")
    return int(taken.exit_code)
