"""The plan's steps folded for reading: what all regions do is said once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pipelines.model import StageName, Step
from tidegate.core.model import Value


class Turn(Value):
    """One step of a region's way, as every region goes it or as some do."""

    stage: StageName
    weight: int | None
    regions: tuple[str, ...]
    """Who has it; the others pass it by."""

    @property
    def name(self) -> str:
        """Of its task: `canary-25`."""
        return str(self.stage) if self.weight is None else f"{self.stage}-{self.weight}"

    def step_id(self, region: str) -> str:
        """As the ledger names it there."""
        return Step(stage=self.stage, region=region, weight=self.weight).id


class Wave(Value):
    """Regions that go their way side by side."""

    number: int
    """From 1."""
    regions: tuple[str, ...]


def turns(steps: Sequence[Step]) -> tuple[Turn, ...]:
    """A region's way: that of the region with the most steps, whose others have parts of it in the same order."""
    lanes: dict[str, list[tuple[StageName, int | None]]] = {}
    for step in steps:
        if step.region:
            lanes.setdefault(step.region, []).append((step.stage, step.weight))
    longest = max(lanes.values(), key=len)
    for lane in lanes.values():
        assert [turn for turn in longest if turn in lane] == lane, "regions go in different orders"
    return tuple(
        Turn(stage=stage, weight=weight, regions=tuple(name for name, lane in lanes.items() if (stage, weight) in lane))
        for stage, weight in longest
    )


def course(steps: Sequence[Step]) -> Iterator[Step | Wave]:
    """The whole way: a step that is done once, or a wave whose regions go theirs."""
    for (wave, regional), stretch in groupby(steps, key=lambda step: (step.wave, step.region is not None)):
        together = list(stretch)
        if regional:
            yield Wave(number=wave, regions=tuple(dict.fromkeys(step.region for step in together if step.region)))
        else:
            yield from together
