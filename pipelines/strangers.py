"""What others have where a delivery's objects would be: asked before anything is written, and told by whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from pipelines.ports import Fleet
from rollouts.errors import NotOurs
from rollouts.manifests.belonging import HINT
from rollouts.model import Stranger


@runtime_checkable
class Shared(Protocol):
    """A fleet in a place where others have objects too, such as a namespace of a cluster."""

    async def strangers(self) -> tuple[Stranger, ...]:
        """Objects of others where this delivery's would be."""
        ...


async def strangers_in(fleet: Fleet) -> tuple[Stranger, ...]:
    """Those of one region; none where nobody else can have any, as on this machine."""
    return await fleet.strangers() if isinstance(fleet, Shared) else ()


async def refuse_strangers(fleets: Iterable[Fleet]) -> None:
    """Return when no region has any.

    Raises:
        NotOurs: with all of them, region by region; nothing was written.
        FleetError: a region cannot be looked at.
    """
    regions = list(fleets)
    found = await asyncio.gather(*(strangers_in(fleet) for fleet in regions))
    told = [
        f"{fleet.region}: {'; '.join(str(each) for each in others)}"
        for fleet, others in zip(regions, found, strict=True)
        if others
    ]
    if told:
        raise NotOurs("; ".join(told), hint=HINT)
