"""Takes regions back to the champion, each on its own: one that is lost does not hold the others.

A region that did not answer is tried again, for as long as the delivery's process lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from pipelines.events.payloads import (
    LeftBehind,
    Returned,
    StepFailure,
    StepProgress,
    TrafficShift,
)
from pipelines.model import Left, Plan
from pipelines.ports import Fleet
from pipelines.run.context import Context
from pipelines.run.regions import needs_undoing
from registry.model import Event, EventKind
from rollouts.errors import HostGone, NotPossible, NotTheCarrier
from rollouts.model import RegionState
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.units import duration, format_duration

STAYS = "could not be rolled back and keeps serving what it serves"
HEAD_START_SECONDS = 0.5
"""Of the regions before the records."""


@dataclass(frozen=True)
class RollbackAttempt:
    """The result of one attempt to roll a region back."""

    error: TidegateError | None = None
    """Why it is not back; None when it is."""
    touched: bool = True
    """Whether this delivery had changed the region; one that it had not it leaves behind in no state of its own."""

    @property
    def is_back(self) -> bool:
        """Whether users are where they belong, as somebody saw."""
        return self.error is None

    @property
    def is_open(self) -> bool:
        """Whether something of this delivery may still be on trial there, and nobody else answers for it."""
        return self.error is not None and self.touched and not isinstance(self.error, HostGone | NotTheCarrier)

    @property
    def may_succeed(self) -> bool:
        """Whether the same try may come to another end later: what is away comes back, what is refused stays so."""
        return self.is_open and isinstance(self.error, OutsideError)


PendingRollback = asyncio.Task[RollbackAttempt]
"""An attempt that has not ended yet."""


async def roll_back(context: Context, regions: Iterable[str] | None = None) -> frozenset[str]:
    """Roll back regions side by side, by default all; returns those that are back once each is, or is reported lost."""
    ways = await request_rollbacks(context, regions)
    await asyncio.gather(*ways.values())
    return arrived(ways)


async def request_rollbacks(context: Context, regions: Iterable[str] | None = None) -> Mapping[str, PendingRollback]:
    """Ask regions to go back, by default all; returns the way of each, which tells the ledger what becomes of it.

    Users come first: every region is asked before anything is written down, and before anybody is waited for.
    """
    wanted = tuple(regions or context.plan.regions)
    context.journal.hold()
    asked = {region: asyncio.create_task(_ask(context, region)) for region in wanted}
    await asyncio.wait(asked.values(), timeout=HEAD_START_SECONDS)
    context.journal.release()
    return {region: asyncio.create_task(_told(context, region, answer)) for region, answer in asked.items()}


def arrived(ways: Mapping[str, PendingRollback]) -> frozenset[str]:
    """The regions that are back by now, or were never touched."""
    over = {region: way.result() for region, way in ways.items() if way.done()}
    return frozenset(region for region, tried in over.items() if tried.is_back)


async def roll_back_late_changes(context: Context, regions: Iterable[str]) -> None:
    """Look again at regions that went back while a step there was still on its way out.

    Its last operation may have come after the way back.
    """

    async def again(region: str) -> None:
        with suppress(TidegateError):
            state = await context.fleets[region].observe()
            if needs_undoing(state, context.plan.in_production):
                await roll_back(context, [region])

    await asyncio.gather(*(again(region) for region in regions))


def _is_touched(context: Context, region: str) -> bool:
    """Whether a step of this delivery began in the region."""
    return any(step.region == region and step.id in context.journal.begun for step in context.plan.steps)


async def _ask(context: Context, region: str) -> RegionState:
    """Ask a region that this delivery has touched to go back, without a look first; of others, only look."""
    fleet, champion = context.fleets[region], context.plan.in_production
    return await (fleet.rollback(champion) if _is_touched(context, region) else fleet.observe())


async def _told(context: Context, region: str, asked: asyncio.Task[RegionState]) -> RollbackAttempt:
    """The first try, told from when it was asked, whatever becomes of it: engines may take a while to drain."""
    if _is_touched(context, region):
        _tell_begun(context, region)
    tried = await _tried(context, region, asked)
    if tried.error is not None:
        what = "serves nobody" if isinstance(tried.error, HostGone) else STAYS
        context.journal.tell(f"undo@{region}", StepFailure(), f"{region} {what}: {tried.error}")
    return tried


async def _tried(context: Context, region: str, asked: asyncio.Task[RegionState]) -> RollbackAttempt:
    """What became of it; a region is rolled back in another way where what was asked was none."""
    step, champion = f"undo@{region}", context.plan.in_production
    fleet, journal, touched = context.fleets[region], context.journal, _is_touched(context, region)
    try:
        state = await _answered(asked, fleet)
        if needs_undoing(state, champion):
            if not touched:
                _tell_begun(context, region)
            touched = True
            state = await back_to_champion(context, fleet)
        elif not touched:
            return RollbackAttempt()
    except TidegateError as error:
        return RollbackAttempt(error, touched)
    traffic = TrafficShift(region=region, weight=state.weight, mirror=state.mirror)
    journal.tell(step, traffic, f"{region}: all users are on version {champion}")
    # Users come first, and are where they belong; what is left to do there must not go unsaid.
    left = "".join(f"; {each}" for each in (state.problem, state.note) if each)
    journal.tell(step, EventKind.DONE, f"{region} serves version {champion}{left}")
    return RollbackAttempt()


def _tell_begun(context: Context, region: str) -> None:
    champion = context.plan.in_production
    context.journal.tell(f"undo@{region}", EventKind.STARTED, f"{region} goes back to version {champion}")


async def _answered(asked: asyncio.Task[RegionState], fleet: Fleet) -> RegionState:
    """The region as it is; one where the champion is not warm, or that never served, could not be asked blindly."""
    try:
        return await asked
    except NotPossible:
        return await fleet.observe()


async def back_to_champion(context: Context, fleet: Fleet) -> RegionState:
    """To the warm champion; one that is no longer warm is started again and takes over when it is ready."""
    try:
        return await fleet.rollback(context.plan.in_production)
    except NotPossible:
        await fleet.deploy(await context.prepare_champion("undo"))
        return await fleet.promote()


FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0
"""Between two tries: twice as long each time, up to the longest. A fleet has a patience of its own in each."""


async def take_back_the_rest(
    context: Context, ways: Mapping[str, PendingRollback], since: datetime, so_far: str
) -> tuple[Left, ...]:
    """Try again and again what is not back, until it is, or `patience.back` is over, or a person has waited enough.

    `ways` are the first try of every region, over or not, asked `since`; `so_far` is how the delivery ends, as it is
    told with the regions that are open.

    Returns:
        What is open in the end.
    """
    seen = {region: last_seen(context.plan, context.journal.moves.get(region)) for region in ways}
    open_now = {
        region: Left(region=region, since=since, serves=seen[region]) for region, way in ways.items() if _is_open(way)
    }
    if not open_now:
        return ()
    left = tuple(open_now.values())
    message = f"{so_far}{told(left)}"
    again = [region for region in open_now if not ways[region].done() or ways[region].result().may_succeed]
    if again and (patience := context.spec.patience.back):
        names = " and ".join(again)
        message += f"; {names}: tried again for up to {format_duration(patience)}, unless Ctrl-C is pressed twice"
    context.journal.tell("delivery", LeftBehind(left=left, reason=so_far), message)
    tries = {region: asyncio.create_task(_until_back(context, region, ways[region], since)) for region in open_now}
    enough = asyncio.create_task(context.impatient.wait())
    try:
        while tries and not enough.done():
            await asyncio.wait({*tries.values(), enough}, return_when=asyncio.FIRST_COMPLETED)
            for region in [region for region, way in tries.items() if way.done()]:
                tried = tries.pop(region).result()
                if not tried.is_open:
                    _tell_closed(context, open_now.pop(region), tried)
    finally:
        unneeded = {*tries.values(), enough, *(ways[region] for region in tries)}
        for task in unneeded:
            task.cancel()
        await asyncio.gather(*unneeded, return_exceptions=True)
    return tuple(open_now.values())


def told(left: tuple[Left, ...]) -> str:
    """Behind the reason of an ending: what is still open, and what to type; empty when nothing is."""
    return "".join(f"; still open: {each}" for each in left)


def _is_open(way: PendingRollback) -> bool:
    return not way.done() or way.result().is_open


async def _until_back(context: Context, region: str, way: PendingRollback, since: datetime) -> RollbackAttempt:
    """What becomes of the region in the end."""
    limit = context.spec.patience.back
    pause, said = FIRST_SECONDS, ""
    tried = await way
    while tried.may_succeed:
        left = (since + limit - context.clock.now()).total_seconds()
        if left <= 0:
            break
        why = str(tried.error)
        if said != why:
            context.journal.tell(
                f"undo@{region}", StepProgress(), f"{region} is not back yet, and is tried again: {why}"
            )
        said = why
        await context.clock.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_SECONDS)
        tried = await _tried(context, region, asyncio.create_task(_ask(context, region)))
    return tried


def _tell_closed(context: Context, left: Left, tried: RollbackAttempt) -> None:
    """It is back, or somebody else answers for it."""
    took = duration((context.clock.now() - left.since).total_seconds())
    message = f"{left.region} is back on version {context.plan.in_production}, {took} after it was asked first"
    if tried.error is not None:
        message = f"{left.region} is in other hands: {tried.error}"
    context.journal.tell("delivery", Returned(region=left.region), message)


def last_seen(plan: Plan, event: Event | None) -> str:
    """What a region serves by the last event that tells of its traffic; nothing that nobody saw."""
    if event is None:
        return "nobody has seen how its users are shared out"
    move = TrafficShift.of(event)
    if event.step.startswith("promote@"):
        shares = f"all users on version {plan.on_trial}"
    elif move.weight:
        shares = f"{move.weight} % of users on version {plan.on_trial}"
    else:
        shares = f"all users on version {plan.in_production}"
    mirrored = f", {move.mirror} % copied to version {plan.on_trial}" if move.mirror else ""
    return f"{shares}{mirrored} when it was last seen, at {event.at:%H:%M:%S} UTC"
