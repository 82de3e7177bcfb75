"""A delivery in memory, each step in surroundings of its own, as fresh processes on other machines would have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fakes.off_loop import OffLoop
from fakes.world import World
from pipelines.context import Context
from pipelines.journal import Journal, opening_of
from pipelines.kept_files import KeptFiles, bring_evidence
from pipelines.model import Result
from pipelines.ports import Event, Ledger
from pipelines.recorded import plan_of
from pipelines.resumption import resume
from pipelines.single import Taken, close, take_step
from pipelines.trials import Trials
from pipelines.vouched import vouched


class Attached:
    """The files that a delivery's ledger keeps."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def fetch(self, delivery: str, folder: str, into: Path) -> Sequence[Path]:
        found = []
        for place, content in sorted(self._files.items()):
            if Path(folder) in Path(place).parents:
                (into / place).parent.mkdir(parents=True, exist_ok=True)
                (into / place).write_bytes(content)
                found.append(into / place)
        return found


class Steps:
    """Processes that share nothing but the ledger and the world."""

    def __init__(
        self, world: World, disks: Path, *, join: Callable[[], Ledger] | None = None, kept: KeptFiles | None = None
    ) -> None:
        """`join` gives each process its ledger and `kept` the files beside it; both are in memory unless given."""
        self.world = world
        self._join = join or (lambda: world.ledger)
        self._kept = kept or Attached(world.ledger.files)
        self._disks = (disks / str(number) for number in itertools.count(1))
        step, kind, message, data = opening_of(world.plan, "delivery.yaml")
        opening = Event(at=world.now(), step=step, kind=kind, message=message, data=data)
        self._join().append(opening)
        world.recorder.on_event(opening)

    @property
    def ids(self) -> list[str]:
        """Every step of the plan, as the ledger has it."""
        return [step.id for step in plan_of(self._join().recorded()).steps]

    def process(self) -> Context:
        """What a process has that has just begun, on a machine where nothing of the delivery is."""
        disk, ledger = next(self._disks), self._join()
        disk.mkdir()
        bring_evidence(self._kept, ledger.delivery, disk, vouched(ledger.recorded()))
        world, registry = self.world, OffLoop(self.world.registry)
        journal = Journal(OffLoop(ledger), world.clock, [world.recorder], registry=registry, limits=world.limits)
        return replace(
            self.world.context(),
            plan=plan_of(ledger.recorded()),
            journal=journal,
            trials=Trials(disk, journal),
        )

    async def take(self, step: str) -> Taken:
        """One step, in a process of its own."""
        return await take_step(self.process(), step)

    async def until(self, last: str) -> list[Taken]:
        """Every step up to that one, or up to the first that is not done."""
        taken: list[Taken] = []
        for step in self.ids[: self.ids.index(last) + 1]:
            taken.append(await self.take(step))
            if not taken[-1].done:
                break
        return taken

    async def resume(self) -> Result:
        """What a person says after all of it was lost."""
        return await resume(self.process())

    async def close(self) -> Result:
        """What an exit handler does."""
        return await close(self.process())

    async def deliver(self) -> Result:
        """All of them, then the exit handler."""
        await self.until(self.ids[-1])
        return await self.close()
