"""deploy: the canary is up and ready in a region, and no user has met it."""

from __future__ import annotations

from functools import partial

from pipelines.context import Context
from pipelines.model import Step


async def deploy(context: Context, step: Step) -> None:
    """Start the challenger beside the stable."""
    # Proves every file once more; that takes a while for a large model.
    engine = await context.engines.prepare(context.plan.version, partial(context.journal.tell, step.id, "evidence"))
    state = await context.fleet(step).deploy(engine)
    context.journal.traffic(step, state)
