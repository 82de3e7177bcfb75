"""Rollback: users back now, by the clusters alone; then the records, where MLflow answers.

Also further back than the version that production had before the delivery, once a person has said yes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from pipelines.adapters.rollback_records import HasNotEnded, RollbackLedger
from pipelines.delivery_lock import delivery_lock, one_rollback, rollback_runs
from pipelines.ports import Fleet, RemembersWayBack
from pipelines.run.rollback_target import (
    already_there,
    before,
    before_by_others,
    in_words,
    is_back,
    previous_of,
    require_warm,
    state_text,
)
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from registry.model import DeliverySummary
from rollouts.cluster.carrier import Carrier
from rollouts.errors import FleetError, NotPossible, NotTheCarrier
from rollouts.local.locks import holder
from rollouts.model import Engine, RegionState
from tidegate.core.clock import WATCH_SECONDS, Clock, SystemClock
from tidegate.core.errors import ExitCode, OutsideError, Refused, TidegateError, UsageError
from tidegate.core.process import note, process_name
from tidegate.surroundings import RETREAT, Surroundings

LOOK_SECONDS = 0.2
ENDS_WITHIN_SECONDS = 120.0
"""For a delivery that was told to end: its next sign of life, and its own way back."""
AGAIN_SECONDS = 1.0
"""Until a delivery that could not be closed, or a region that goes back, is looked at again."""


@dataclass(frozen=True)
class RollbackOutcome:
    """What every region serves in the end, by region, and what went wrong."""

    versions: Mapping[str, str]
    wrong: Sequence[str]

    @property
    def exit_code(self) -> ExitCode:
        """4 when a region is not back, or is not seen."""
        return ExitCode.OUTSIDE if self.wrong else ExitCode.DELIVERED


async def take_back(
    at: Surroundings,
    spec: Delivery,
    *,
    to: str | None = None,
    start: bool = False,
    confirm: Callable[[str], None] = lambda _: None,
    regions: Collection[str] = (),
    end_own: Callable[[], bool] = lambda: False,
) -> RollbackOutcome:
    """Take every region back: users first, by the clusters alone, then the records, where MLflow answers.

    Args:
        at: where.
        spec: the delivery's; neither the golden set nor prompts, which the person in a hurry may not have.
        to: `previous` or a version's number; None for the version that production had before the delivery.
        start: with `to`: start it again where it is not warm.
        confirm: with `to`: asks a person, and raises when the answer is no.
        regions: only these; all when empty.
        end_own: asks a delivery of this very process to end, which gets no signal; whether there is one.

    Raises:
        UsageError: a region is unknown, or the version cannot be moved to as asked.
        OutsideError: no fleet runs here.
    """
    if to and regions:
        raise UsageError("--to moves production everywhere, --region is for single regions", hint="give one of them")
    if unknown := [region for region in regions if region not in spec.regions.names]:
        raise UsageError(f"there is no region {unknown[0]}", hint=f"one of: {', '.join(spec.regions.names)}")
    async with AsyncExitStack() as stack:
        carrier = rollback_carrier(spec)
        running = await stack.enter_async_context(at.fleets(spec, patience=RETREAT, carrier=carrier))
        if not running:
            raise OutsideError(
                "no fleet runs here, so there is nothing to roll back", hint="--state names the folder of another fleet"
            )
        watched = await stack.enter_async_context(at.fleets(spec, patience=RETREAT))
        fleets = {region: running[region] for region in regions or spec.regions.names}
        ledger = RollbackLedger(spec, at.root, at.tracking_uri)
        before = partial(ledger.engine_before, engines=at.own.engines if at.own else None)
        rollback = Rollback(spec, at.state, fleets, watched, ledger, before, end_own=end_own)
        wrong = await (roll_back_to(rollback, to, start, confirm) if to else roll_back(rollback))
        return outcome_of(wrong, await observe_regions(rollback))


def rollback_carrier(spec: Delivery) -> Carrier:
    """Name somebody who takes regions back, no matter who carries a delivery there."""
    return Carrier(
        token=uuid4().hex, who=process_name(), insists=True, unattended_seconds=spec.fleet.unattended.total_seconds()
    )


@dataclass(frozen=True)
class Rollback:
    """One rollback: where, and who is told."""

    spec: Delivery
    state: StateFolder
    fleets: Mapping[str, Fleet]
    watched: Mapping[str, Fleet]
    """The same regions, only to be looked at: the one who was overtaken there by another rollback still sees."""
    records: RollbackLedger
    engine_before: Callable[[Fleet, str], Awaitable[Engine]]
    """What served a version before, to be started again."""
    clock: Clock = field(default_factory=SystemClock)
    end_own: Callable[[], bool] = lambda: False
    noted: dict[str, str] = field(default_factory=dict)
    """What was said last of each region: regions are asked more than once, and what is not new is not repeated."""

    async def now(self, to: str | None = None) -> dict[str, RegionState | TidegateError]:
        """Take whatever is on trial away, in every region at once; those that do not serve `to` go there next."""
        found = await asyncio.gather(*(_roll_back_region(self, region, to) for region in self.fleets))
        return dict(zip(self.fleets, found, strict=True))

    def say(self, region: str, text: str) -> None:
        """Note it, unless it is what was said last of the region."""
        if self.noted.get(region) != text:
            note(f"{region}: {text}")
        self.noted[region] = text


async def roll_back(rollback: Rollback, to: str | None = None, *, start: bool = False) -> list[str]:
    """Users first, what was promoted already too, by what regions say; then the carrier, then the records.

    No word of MLflow decides where anybody goes: each region to `to`, or to the version before the delivery, as it
    knows it. `start` allows that version to be started by the image that MLflow names. Returns what went wrong.
    """
    process = stop_local_delivery(rollback)
    found = await rollback.now(to)
    moved = {} if to else await ways_back(rollback, found)
    await _move_regions(rollback, moved, promoted=True)
    async with one_rollback(rollback.state.root, note):
        late = await wait_for_local_end(process, rollback)
        while True:
            last, unheard = None, ""
            try:
                last = await stop_remote_delivery(rollback)
            except HasNotEnded as error:
                late.append(str(error))
            except TidegateError as error:
                unheard = str(error)
                note(f"not recorded, and no delivery elsewhere was told: {error}")
                note("once MLflow answers, `tidegate rollback` says it there, and moves nobody who is back")
            found = await rollback.now(to)
            if to is None:
                wanted = await ways_back(rollback, found, last)
                wrong = [*late, *await _move_regions(rollback, wanted, promoted=True)]
            else:
                wanted = dict.fromkeys(rollback.fleets, to)
                # The host of this machine takes a canary back that no delivery stands behind.
                with delivery_lock(rollback.state.lock):
                    wrong = [*late, *await _move_regions(rollback, wanted, by_image=start)]
                if not wrong:
                    await _reinstate(rollback, to)
            moved = {**moved, **wanted}
            left = [] if wrong else await _say_in_git(rollback, moved)
            # Of a delivery that nobody carries, other regions may still be on trial.
            leave_open = wrong or unheard or set(rollback.fleets) != set(rollback.spec.regions.names)
            if last is None or last.ended is not None or leave_open or await _close_abandoned(rollback, last):
                return wrong + left
            # Somebody carries it still, who was silent for so long that he was taken for gone.
            await rollback.clock.sleep(AGAIN_SECONDS)


async def ways_back(
    rollback: Rollback, found: Mapping[str, RegionState | TidegateError], last: DeliverySummary | None = None
) -> dict[str, str]:
    """The regions that a delivery which is not over has promoted, each with the version that it goes back to.

    A region says so itself. One that remembers nothing of the kind goes back to what it keeps warm, where that is what
    the others serve, or what the ledger names: `last` only chooses among the versions that a region keeps.
    """
    states, wanted = _observed(found), dict[str, str]()
    for region, state in states.items():
        fleet = rollback.watched[region]
        if isinstance(fleet, RemembersWayBack):
            with suppress(FleetError):
                to = await fleet.way_back()
                wanted |= {region: to} if to and state.stable and state.stable.version != to else {}
    others = {name: state for name, state in states.items() if not isinstance(rollback.watched[name], RemembersWayBack)}
    kept = {name: to for name, to in before(others, last).items() if to in others[name].warm}
    return wanted | before_by_others(others) | kept


async def _roll_back_region(rollback: Rollback, region: str, to: str | None) -> RegionState | TidegateError:
    telling = asyncio.create_task(_tell_once_back(rollback, region, to))
    try:
        try:
            state = await rollback.fleets[region].rollback(None)
        except NotTheCarrier:
            note(f"{region}: somebody else is taking it back at this moment")
            state = await _once(rollback, region, is_back)
    except FleetError as error:
        note(f"{region}: could not be rolled back: {error}")
        return error
    finally:
        telling.cancel()
    rollback.say(region, state_text(state, to))
    return state


async def _tell_once_back(rollback: Rollback, region: str, to: str | None) -> None:
    """Say when users are back, which is before the canary's engines have ended."""
    while True:
        await rollback.clock.sleep(AGAIN_SECONDS)
        with suppress(TidegateError):
            state = await rollback.watched[region].observe()
            if state.stable and is_back(state) and not state.problem:
                return rollback.say(region, state_text(state, to))


async def _once(rollback: Rollback, region: str, holds: Callable[[RegionState], bool]) -> RegionState:
    """The region once another rollback has done what this one wanted; as it is, when that takes too long."""
    deadline = rollback.clock.monotonic() + ENDS_WITHIN_SECONDS
    while not holds(state := await rollback.watched[region].observe()) and rollback.clock.monotonic() < deadline:
        await rollback.clock.sleep(LOOK_SECONDS)
    return state


def _observed(found: Mapping[str, RegionState | TidegateError]) -> dict[str, RegionState]:
    return {region: state for region, state in found.items() if isinstance(state, RegionState)}


def stop_local_delivery(rollback: Rollback) -> int | None:
    """The process of the delivery that runs here, which was asked to end; another rollback is none."""
    process = holder(rollback.state.lock)
    if process is None or rollback_runs(rollback.state.root):
        return None
    if process == os.getpid():
        # Never a signal: it would end the whole program. One that it does not know hears of it from its ledger.
        return process if rollback.end_own() else None
    note(f"stopping the delivery of process {process}")
    os.kill(process, signal.SIGTERM)
    return process


async def wait_for_local_end(process: int | None, rollback: Rollback) -> list[str]:
    """Wait until the delivery of this machine has ended, as it was told."""
    for _ in range(round(ENDS_WITHIN_SECONDS / LOOK_SECONDS)):
        if process is None or holder(rollback.state.lock) != process:
            return []
        await rollback.clock.sleep(LOOK_SECONDS)
    return [
        f"the delivery of process {process} was told to end and has not; it may still move users: end it, and retry"
    ]


async def stop_remote_delivery(rollback: Rollback) -> DeliverySummary | None:
    """The model's last delivery, once nobody carries it any more.

    Raises:
        TidegateError: MLflow does not answer, or the delivery does not end (`HasNotEnded`).
    """
    last, alive = await rollback.records.ask(RollbackLedger.last)
    if last is None or last.ended is not None:
        return last
    told, where = last.id, f"process {last.pid} on {last.host}"
    if alive:
        note(f"stopping delivery {told}, {where}: it hears of it within seconds")
    # One that seems to be gone is told too: it may only have been held up.
    await rollback.records.ask(lambda it: it.stop(told))
    deadline = rollback.clock.monotonic() + ENDS_WITHIN_SECONDS
    while rollback.clock.monotonic() < deadline:
        last, alive = await rollback.records.ask(RollbackLedger.last)
        if last is None or last.ended is not None or not alive:
            return last
        await rollback.clock.sleep(1.0)
    raise HasNotEnded(
        f"the delivery of {where} was told to end and has not; it may still move users",
        hint="end it there, in a workflow wait for the step `close`, and retry",
    )


async def _move_regions(
    rollback: Rollback, wanted: Mapping[str, str], *, promoted: bool = False, by_image: bool = False
) -> list[str]:
    """Each region to its version, at once; returns what went wrong. `promoted` ones go back by themselves."""
    for region, to in wanted.items() if promoted else ():
        rollback.say(region, f"was promoted already, goes back to version {to}")
    moves = (move_region(rollback, region, to, by_image=by_image) for region, to in wanted.items())
    found = await asyncio.gather(*moves, return_exceptions=True)
    wrong = []
    for region, error in zip(wanted, found, strict=True):
        if isinstance(error, TidegateError):
            wrong.append(f"{region}: {error}")
        elif isinstance(error, BaseException):
            raise error
    return wrong


async def move_region(rollback: Rollback, region: str, to: str, *, by_image: bool = False) -> None:
    """To a version that is warm; one that is not is started again, and takes over when it is ready.

    A cluster starts what its own ReplicaSets keep; `by_image` also what MLflow names, which a person has asked for.

    Raises:
        TidegateError: it could not be done; users stay where they are.
    """
    fleet = rollback.fleets[region]

    def there(state: RegionState) -> bool:
        return is_back(state) and state.stable is not None and state.stable.version == to

    try:
        await fleet.rollback(to)
    except NotTheCarrier:
        if not there(await _once(rollback, region, there)):
            raise
    except NotPossible:
        note(f"{region}: version {to} is no longer warm and is started again")
        await _start_again(rollback, fleet, to, by_image=by_image)
    rollback.say(region, f"all users are on version {to}")
    if isinstance(fleet, RemembersWayBack):
        # No later rollback goes further back by itself.
        with suppress(NotTheCarrier):
            await fleet.settle()


async def _start_again(rollback: Rollback, fleet: Fleet, to: str, *, by_image: bool) -> None:
    if isinstance(fleet, RemembersWayBack):
        with suppress(NotPossible) if by_image else nullcontext():
            await fleet.restart(to)
            return
    await fleet.deploy(await rollback.engine_before(fleet, to))
    await fleet.promote()


async def _say_in_git(rollback: Rollback, served: Mapping[str, str]) -> list[str]:
    """Once users are where they belong; returns what is left to do in the repository, where the spec names one."""
    if rollback.spec.git is None or not served:
        return []
    # Not above: users are back before any of it is loaded.
    from pipelines.run.git import git_access_for, write_served

    access = git_access_for(rollback.spec, SystemClock())
    assert access is not None, "the spec names a repository"

    async def engine_of(region: str, version: str) -> Engine:
        return await rollback.engine_before(rollback.fleets[region], version)

    return await write_served(rollback.spec, access, served, engine_of, note)


async def _close_abandoned(rollback: Rollback, last: DeliverySummary) -> bool:
    """Close a delivery that nobody carries; false when somebody carries it after all, or closes it at this moment."""
    served = {state.stable.version for state in _observed(await observe_regions(rollback)).values() if state.stable}
    try:
        serves = served.pop() if len(served) == 1 else None
        await rollback.records.ask(lambda it: it.close(last, serves), more_seconds=WATCH_SECONDS)
    except Refused:
        return False
    except TidegateError as error:
        note(f"delivery {last.id} was not closed: {error}; the next `tidegate deliver` closes it")
    else:
        note(f"delivery {last.id} of version {last.version} is closed: interrupted")
    return True


async def observe_regions(rollback: Rollback) -> dict[str, RegionState | TidegateError]:
    """What every region serves in the end, or why it cannot be seen."""

    async def look(fleet: Fleet) -> RegionState | TidegateError:
        try:
            return await fleet.observe()
        except FleetError as error:
            return error

    fleets = [rollback.watched[region] for region in rollback.fleets]
    return dict(zip(rollback.fleets, await asyncio.gather(*map(look, fleets)), strict=True))


def outcome_of(wrong: list[str], found: Mapping[str, RegionState | TidegateError]) -> RollbackOutcome:
    """Where users are, from the states of the regions, and what went wrong besides."""
    wrong = list(wrong)
    versions: dict[str, str] = {}
    for region, state in found.items():
        if isinstance(state, TidegateError):
            wrong.append(f"{region} cannot be seen: {state}; run it again")
            continue
        versions[region] = state.stable.version if state.stable else "none"
        if state.foreign_objects:
            # Whom their users reach, nobody has observed: it is not for a rollback of ours to say.
            wrong.append(f"{region}: {'; '.join(map(str, state.foreign_objects))}; nothing was rolled back there")
        elif not is_back(state):
            why = state.problem or f"{state.weight} % of users are on the canary"
            wrong.append(f"{region} is not back: {why}; run it again")
    return RollbackOutcome(versions, wrong)


async def roll_back_to(rollback: Rollback, to: str, start: bool, confirm: Callable[[str], None]) -> list[str]:
    """Every region to that version, once a person has said yes; returns what went wrong.

    Raises:
        UsageError: it is not warm everywhere and may not be started, or nobody can be asked.
        Refused: the person said no; nothing was changed.
        OutsideError: a region cannot be seen, so it is unknown what would become of it.
    """
    found = await asyncio.gather(*(fleet.observe() for fleet in rollback.fleets.values()))
    states = dict(zip(rollback.fleets, found, strict=True))
    version = to
    if to == "previous":
        alias: str | None = None
        if not any(state.previous for state in states.values()):
            try:
                alias = await rollback.records.ask(RollbackLedger.previous)
            except OutsideError as error:
                note(f"MLflow was asked for the alias `{rollback.spec.model.previous}`: {error}")
        version = previous_of(states, alias)
    if already_there(states, version):
        return await _say_in_git(rollback, dict.fromkeys(rollback.fleets, version))
    require_warm(states, version, start=start)
    confirm(in_words(states, version))
    return await roll_back(rollback, version, start=start)


async def _reinstate(rollback: Rollback, version: str) -> None:
    try:
        await rollback.records.ask(lambda it: it.reinstate(version))
    except TidegateError as error:
        name, alias = rollback.spec.model.name, rollback.spec.model.target
        note(f"`{alias}` was not moved: {error}; later: `tidegate model alias {name} {version} {alias}`")
