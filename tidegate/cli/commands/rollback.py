"""`tidegate rollback`: users back now, by the clusters alone; then the records, where MLflow answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from pipelines.adapters.lock import holder, one_rollback, rollback_runs
from pipelines.ports import Fleet
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from pipelines.way_back import before, before_by_others, is_back
from registry.model import DeliverySummary
from rollouts.errors import FleetError, NotPossible, NotTheCarrier
from rollouts.model import Engine, RegionState
from tidegate.cli.carriers import insisting
from tidegate.cli.output import note, print_json
from tidegate.cli.records import Records
from tidegate.cli.standing import standing_fleets
from tidegate.core.errors import ExitCode, OutsideError, TidegateError
from tidegate.core.spec import load_spec

LOOK_SECONDS = 0.2
PATIENCE = timedelta(seconds=30)
"""For a region that does not answer: a person waits, and may say it again."""
ENDS_WITHIN_SECONDS = 120.0
"""For a delivery that was told to end: its next sign of life, and its own way back."""


@dataclass(frozen=True)
class Asked:
    """As the options say it."""

    spec: Path
    state: Path
    tracking_uri: str | None
    to: str | None = None
    """`previous` or a version's number; None for the version that production had before the delivery."""
    start: bool = False
    """Start it again where it is not warm."""
    yes: bool = False


@dataclass(frozen=True)
class Back:
    """One rollback: where, and who is told."""

    spec: Delivery
    state: StateFolder
    fleets: Mapping[str, Fleet]
    watched: Mapping[str, Fleet]
    """The same regions, only to be looked at: whoever was overtaken there by another rollback still sees."""
    records: Records
    engine_before: Callable[[Fleet, str], Awaitable[Engine]]
    """What served a version before, to be started again."""

    async def now(self) -> dict[str, RegionState | TidegateError]:
        """Take whatever is on trial away, in every region at once."""
        found = await asyncio.gather(*(_taken_back(self, region) for region in self.fleets))
        return dict(zip(self.fleets, found, strict=True))


def run(asked: Asked, *, as_json: bool) -> int:
    """Take every region back; 4 when one could not be, or is not seen."""
    # Neither the golden set nor prompts, which the person in a hurry may not have.
    spec, state = load_spec(asked.spec, Delivery), StateFolder(asked.state)
    return asyncio.run(_run(asked, spec, state, as_json=as_json))


async def _run(asked: Asked, spec: Delivery, state: StateFolder, *, as_json: bool) -> int:
    async with AsyncExitStack() as stack:
        insists = standing_fleets(spec, state, patience=PATIENCE, carrier=insisting(spec))
        standing = await stack.enter_async_context(insists)
        if not standing:
            raise OutsideError("no fleet runs here", hint="start it with `tidegate fleet up`")
        watched = await stack.enter_async_context(standing_fleets(spec, state, patience=PATIENCE))
        fleets = {region: standing[region] for region in spec.regions.names}
        records = Records(spec.model.name, state.root, asked.tracking_uri)
        back = Back(spec, state, fleets, watched, records, partial(_engine_before, spec, state, records))
        if asked.to is None:
            told = await _take_back(back)
        else:
            from tidegate.cli.commands.rollback_to import Further, go_further

            told = await go_further(Further(asked.to, start=asked.start, yes=asked.yes), back)
        return _report(told, await _served({region: watched[region] for region in fleets}), as_json=as_json)


async def _take_back(back: Back) -> list[str]:
    """Users first, then the carrier, then what was promoted already, then the records; returns what went wrong."""
    process = told_to_end(back.state)
    now = await back.now()
    with one_rollback(back.state.root, note):
        wrong = await stopped_here(process, back.state)
        try:
            last = await stopped_elsewhere(back)
        except TidegateError as error:
            note(f"not recorded, and no delivery elsewhere was told: {error}")
            note("once MLflow answers, `tidegate rollback` says it there, and moves nobody who is back")
            wanted = before_by_others(_seen(now))
            return wrong + await _all_to(back, wanted)
        states = _seen(await back.now())
        wrong += await _all_to(back, before(states, last))
        if last is not None and last.ended is None and not wrong:
            await _closed(back.records, last)
    return wrong


async def _taken_back(back: Back, region: str) -> RegionState | TidegateError:
    try:
        try:
            state = await back.fleets[region].rollback(None)
        except NotTheCarrier:
            note(f"{region}: somebody else is taking it back at this moment")
            state = await _until(back.watched[region], is_back)
    except FleetError as error:
        note(f"{region}: could not be taken back: {error}")
        return error
    note(f"{region}: {_in_words(state)}")
    return state


async def _until(fleet: Fleet, holds: Callable[[RegionState], bool]) -> RegionState:
    """The region once another rollback has done what this one wished; as it is, when that takes too long."""
    deadline = asyncio.get_running_loop().time() + ENDS_WITHIN_SECONDS
    while True:
        state = await fleet.observe()
        if holds(state) or asyncio.get_running_loop().time() > deadline:
            return state
        await asyncio.sleep(LOOK_SECONDS)


def _in_words(state: RegionState) -> str:
    if state.stable is None:
        return "serves nobody"
    left = f"; {state.problem}" if state.problem else ""
    return f"all users are on version {state.stable.version}{left}" if is_back(state) else f"is not back yet{left}"


def _seen(found: Mapping[str, RegionState | TidegateError]) -> dict[str, RegionState]:
    return {region: state for region, state in found.items() if isinstance(state, RegionState)}


def told_to_end(state: StateFolder) -> int | None:
    """The process of the delivery that runs here, which was told to end; another rollback is none."""
    process = holder(state.lock)
    if process is None or rollback_runs(state.root):
        return None
    note(f"stopping the delivery of process {process}")
    os.kill(process, signal.SIGTERM)
    return process


async def stopped_here(process: int | None, state: StateFolder) -> list[str]:
    """Wait until the delivery of this machine has ended, as it was told."""
    for _ in range(round(ENDS_WITHIN_SECONDS / LOOK_SECONDS)):
        if process is None or holder(state.lock) != process:
            return []
        await asyncio.sleep(LOOK_SECONDS)
    return [f"the delivery of process {process} was told to end and has not; it may still move users"]


async def stopped_elsewhere(back: Back) -> DeliverySummary | None:
    """The model's last delivery, once nobody carries it any more.

    Raises:
        TidegateError: MLflow does not answer, or the delivery does not end.
    """
    known = await back.records.known()
    if known.last is None or known.last.ended is not None or not known.alive:
        return known.last
    where = f"process {known.last.pid} on {known.last.host}"
    note(f"stopping delivery {known.last.id[:8]}, {where}: it hears of it within seconds")
    await back.records.stop(known.last.id)
    deadline = asyncio.get_running_loop().time() + ENDS_WITHIN_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        known = await back.records.known()
        if known.last is None or known.last.ended is not None or not known.alive:
            return known.last
        await asyncio.sleep(1.0)
    raise OutsideError(f"the delivery of {where} was told to end and has not; it may still move users")


async def _all_to(back: Back, wanted: Mapping[str, str]) -> list[str]:
    """Regions that were promoted already, to where they were before; returns what went wrong."""
    found = await asyncio.gather(*(moved(back, region, to) for region, to in wanted.items()), return_exceptions=True)
    wrong = []
    for region, error in zip(wanted, found, strict=True):
        if isinstance(error, TidegateError):
            wrong.append(f"{region}: {error}")
        elif isinstance(error, BaseException):
            raise error
    return wrong


async def moved(back: Back, region: str, to: str) -> None:
    """To a version that is warm; one that is not is started again, and takes over when it is ready.

    Raises:
        TidegateError: it could not be done; users stay where they are.
    """
    fleet = back.fleets[region]

    def there(state: RegionState) -> bool:
        return is_back(state) and state.stable is not None and state.stable.version == to

    try:
        await fleet.rollback(to)
    except NotTheCarrier:
        if not there(await _until(back.watched[region], there)):
            raise
    except NotPossible:
        note(f"{region}: version {to} is no longer warm and is started again")
        await fleet.deploy(await back.engine_before(fleet, to))
        await fleet.promote()


async def _engine_before(spec: Delivery, state: StateFolder, records: Records, fleet: Fleet, version: str) -> Engine:
    # Not above: it knows how engines are made, which going back to a warm one does not need.
    from tidegate.cli.engines_before import engine_before

    return await engine_before(fleet, version, spec, state, records)


async def _closed(records: Records, last: DeliverySummary) -> None:
    try:
        await records.close(last)
    except TidegateError as error:
        note(f"delivery {last.id[:8]} was not closed: {error}; the next `tidegate deliver` closes it")
    else:
        note(f"delivery {last.id[:8]} of version {last.version} is closed: interrupted")


async def _served(fleets: Mapping[str, Fleet]) -> dict[str, RegionState | TidegateError]:
    async def look(fleet: Fleet) -> RegionState | TidegateError:
        try:
            return await fleet.observe()
        except FleetError as error:
            return error

    return dict(zip(fleets, await asyncio.gather(*map(look, fleets.values())), strict=True))


def _report(wrong: list[str], found: Mapping[str, RegionState | TidegateError], *, as_json: bool) -> int:
    versions: dict[str, str] = {}
    for region, state in found.items():
        if isinstance(state, TidegateError):
            wrong.append(f"{region} cannot be seen: {state}; say it again")
            continue
        versions[region] = state.stable.version if state.stable else "none"
        if not is_back(state):
            why = state.problem or f"{state.weight} % of users are on the canary"
            wrong.append(f"{region} is not back: {why}; say it again")
    if as_json:
        print_json({"regions": versions, "wrong": wrong})
    else:
        print(*(f"{region}: version {version}" for region, version in versions.items()), sep="\n")
    for line in wrong:
        print(f"tidegate: {line}", file=sys.stderr)
    return ExitCode.OUTSIDE if wrong else ExitCode.DELIVERED
