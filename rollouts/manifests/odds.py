"""What is right in `fleet` and right elsewhere in a delivery, and wrong together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.manifests.conventions import CANARY, LONGEST_NAME, canary_service
from rollouts.manifests.gpus import CPU, labellers_of
from rollouts.manifests.spec import ArgoFleetSpec, Strategy
from tidegate.core.model import Contradiction, Value
from tidegate.core.quantities import format_duration


class Around(Value):
    """The parts of a delivery that its fleet has to fit."""

    name: str
    regions: tuple[str, ...]
    bake: timedelta
    accelerator: str
    weights: tuple[int, ...] = ()
    """Of the canary stage; empty without one."""


def odds_with(fleet: ArgoFleetSpec, around: Around) -> Iterator[Contradiction]:
    """Each with its place below `fleet`."""
    yield from _around_regions(fleet, around)
    yield from _around_gpus(fleet, around)
    if len(canary_service(around.name)) > LONGEST_NAME:
        longest = LONGEST_NAME - len(CANARY) - 1
        yield Contradiction((), f"a delivery whose name has {len(around.name)} characters", f"at most {longest}")
    if fleet.strategy is Strategy.BLUE_GREEN and around.weights:
        found = "blue-green, which moves all users at once, with a canary stage"
        yield Contradiction(("strategy",), found, "strategy: canary, or no canary stage")
    if fleet.previous and fleet.previous.keep <= around.bake:
        found = f"{format_duration(fleet.previous.keep)}: gone before the bake ends"
        expected = f"more than `regions.bake`, which is {format_duration(around.bake)}"
        yield Contradiction(("previous", "keep"), found, expected)


def _around_regions(fleet: ArgoFleetSpec, around: Around) -> Iterator[Contradiction]:
    for region in fleet.regions:
        if region not in around.regions:
            expected = "one of " + ", ".join(around.regions)
            yield Contradiction(("regions", region), "a region of no wave", expected)
    for region in around.regions:
        if region not in fleet.regions:
            yield Contradiction(("regions",), f"no {region}", "every region of every wave")


def _around_gpus(fleet: ArgoFleetSpec, around: Around) -> Iterator[Contradiction]:
    labellers = labellers_of(around.accelerator)
    if around.accelerator == CPU:
        if fleet.nodes.karpenter:
            yield Contradiction(
                ("nodes", "karpenter"), "a pool of nodes with GPUs for a CPU", "an `engine.accelerator`"
            )
        return
    if fleet.nodes.gpu_labels not in labellers:
        found = f"{fleet.nodes.gpu_labels}, which never labels a node with {around.accelerator}"
        yield Contradiction(("nodes", "gpu_labels"), found, " or ".join(labellers) or "another accelerator")
