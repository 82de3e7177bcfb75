"""promote: the canary becomes the region's stable; the old stable stays warm."""

from __future__ import annotations

from pipelines.context import Context
from pipelines.model import Step
from pipelines.watch import refuse_dead_canary


async def promote(context: Context, step: Step) -> None:
    """Give the region to the challenger; nothing to do when a delivery that died had done it already."""
    fleet = context.fleet(step)
    state = await fleet.observe()
    # Said again after a crash, the wish may hold already; then there is no canary to look at.
    if state.stable is None or state.stable.version != context.plan.version.version:
        refuse_dead_canary(context, state)
        state = await fleet.promote()
    context.journal.traffic(step, state)
