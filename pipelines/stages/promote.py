"""promote: the canary becomes the region's stable; the old stable stays warm."""

from __future__ import annotations

from pipelines.context import Context
from pipelines.model import Step


async def promote(context: Context, step: Step) -> None:
    """Give the region to the challenger."""
    state = await context.fleet(step).promote()
    context.journal.traffic(step, state)
