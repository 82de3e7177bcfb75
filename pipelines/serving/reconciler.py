"""Brings together what the registry wants, what the ledger has and what the inbox holds, again and again.

A webhook only makes it look sooner. MLflow sends webhooks from a pool of threads in its own process and gives one up
after its retries with a line in its log, so a wish that only a webhook could bring would be lost with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipelines.serving.inbox import Inbox
from pipelines.serving.ports import Ledgers, Marks, Starter
from registry.model import DeliverySummary
from registry.triggers.model import Entry, State
from registry.triggers.queue import Policy, after_a_try_in_vain, answer, next_of, superseded
from tidegate.core.beside import beside
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

SOON = timedelta(seconds=5)
"""Until the next look while something was started that the ledger does not show yet."""


@dataclass(frozen=True)
class Watched:
    """Which marks wish for a delivery, and how wishes wait."""

    model: str
    alias: str
    policy: Policy
    every: timedelta
    """Between two looks at the registry, when no webhook asks for one."""


@dataclass(frozen=True)
class World:
    """What is asked and what is done."""

    inbox: Inbox
    marks: Marks
    ledgers: Ledgers
    starter: Starter
    clock: Clock
    say: Callable[[str], None]
    """Tells a person what happens."""


@dataclass(frozen=True)
class _Run:
    """The deliveries of the model at one moment."""

    all: Sequence[DeliverySummary]
    alive: Collection[str]


class Reconciler:
    """One model's; starts nothing while a delivery of the model runs, whoever started it."""

    def __init__(self, watched: Watched, world: World) -> None:
        self._watched, self._world = watched, world
        self._woken = asyncio.Event()
        self._stopping = False
        self.looked: datetime | None = None
        """When all was well last; None before the first time."""
        self.failures = 0
        """Looks in vain since this process began."""

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    def stop(self) -> None:
        """Return from `forever` after what is being done."""
        self._stopping = True
        self._woken.set()

    def is_current(self) -> bool:
        """Whether a look succeeded lately; a start takes a moment, so three times the usual pause."""
        return self.looked is not None and self._world.clock.now() - self.looked <= 3 * self._watched.every + SOON

    async def forever(self) -> None:
        """Look, act, and wait; what is outside and not there is tried again next time."""
        while not self._stopping:
            self._woken.clear()
            try:
                soon = await self.once()
            except TidegateError as error:
                self.failures += 1
                self._world.say(f"not reconciled: {error}")
                soon = False
            pause = min(SOON, self._watched.every) if soon else self._watched.every
            await self._pause(pause)

    async def once(self) -> bool:
        """One look; returns whether the next should be soon.

        Raises:
            TidegateError: the registry or the inbox did not answer; what was done until then stands.
        """
        world, watched, looked = self._world, self._watched, self._world.clock.now()
        marked = await beside(world.marks.marked, watched.model, watched.alias)
        for wish in world.inbox.compare(watched.model, watched.alias, marked, looked, watched.policy):
            world.say(f"{wish}: found in the registry")
        # The ledger keeps every delivery there ever was: nobody asks for them while no wish is open.
        if wishes := self._standing(State.QUEUED, State.STARTED):
            deliveries = await beside(self._deliveries)
            for entry in wishes:
                await self._follow(entry, deliveries)
            await self._begin_next(deliveries)
        self.looked = looked
        return any(entry.delivery is None for entry in self._standing(State.STARTED))

    def _deliveries(self) -> _Run:
        found = self._world.ledgers.deliveries(self._watched.model)
        return _Run(found, {each.id for each in found if self._world.ledgers.is_alive(each)})

    async def _follow(self, entry: Entry, deliveries: _Run) -> None:
        """Write down what has become of a wish by now."""
        found = answer(entry, deliveries.all, deliveries.alive)
        if found is not None:
            self._update(entry, _answered(entry, found, alive=found.id in deliveries.alive))
        elif entry.state is State.STARTED and not await self._world.starter.runs(entry):
            self._update(entry, after_a_try_in_vain(entry, self._world.clock.now()))

    async def _begin_next(self, deliveries: _Run) -> None:
        queued = self._standing(State.QUEUED)
        for entry in superseded(queued, self._watched.policy):
            note = f"superseded by version {queued[-1].wish.version}"
            self._update(entry, entry.model_copy(update={"state": State.SUPERSEDED, "note": note}))
        chosen = next_of(self._standing(State.QUEUED), self._world.clock.now())
        if chosen is not None and not deliveries.alive and not self._standing(State.STARTED):
            await self._begin(chosen)

    async def _begin(self, entry: Entry) -> None:
        """Start it. That it was tried is written first: nothing is ever started twice for want of a note."""
        trying = entry.model_copy(update={"state": State.STARTED, "tries": entry.tries + 1, "note": "starting"})
        self._update(entry, trying)
        try:
            run = await self._world.starter.start(trying)
        except TidegateError as error:
            failed = after_a_try_in_vain(trying, self._world.clock.now())
            self._update(trying, failed.model_copy(update={"note": f"{failed.note}: {error}"}))
            return
        self._update(trying, trying.model_copy(update={"run": run, "note": f"started as {run}"}))

    def _standing(self, *states: State) -> list[Entry]:
        found = self._world.inbox.standing(self._watched.model, self._watched.alias)
        return [entry for entry in found if entry.state in states]

    def _update(self, before: Entry, after: Entry) -> None:
        if after != before:
            self._world.inbox.update(after)
            self._world.say(f"{after.wish}: {after.state}: {after.note}")

    async def _pause(self, pause: timedelta) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), pause.total_seconds())
        except TimeoutError:
            return


def _answered(entry: Entry, delivery: DeliverySummary, *, alive: bool) -> Entry:
    if alive:
        note = f"delivery {delivery.id} runs on {delivery.host}"
        return entry.model_copy(update={"state": State.STARTED, "delivery": delivery.id, "note": note})
    ending = delivery.outcome or f"died; `tidegate resume {delivery.id}` carries it on"
    note = f"delivery {delivery.id}: {ending}"
    return entry.model_copy(update={"state": State.OVER, "delivery": delivery.id, "note": note})
