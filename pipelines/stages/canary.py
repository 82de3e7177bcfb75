"""canary: a share of a region's users on the new version, beside the stable, until the gates decide."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gates.model import Verdict
from pipelines.context import Context
from pipelines.live import errors_verdict, latency_verdict
from pipelines.model import Step
from pipelines.watch import Window, refuse_dead_canary, watch

# By the names that a spec may give to canary's gates.
VERDICTS = {"latency": latency_verdict, "errors": errors_verdict}


async def canary(context: Context, step: Step) -> None:
    """Shift to the step's weight and watch."""
    settings = context.spec.canary
    assert settings is not None, f"{step.id} without a canary stage"
    assert step.weight is not None, f"{step.id} without a weight"
    fleet = context.fleet(step)
    refuse_dead_canary(await fleet.observe())
    context.journal.traffic(step, await fleet.shift(step.weight))
    since, arms = context.clock.now(), context.arms(step)

    # In threads: reading Prometheus and record files would hold up everything else of the delivery.
    async def ask(final: bool) -> Sequence[Verdict]:
        return [await asyncio.to_thread(VERDICTS[gate], context, *arms, since, final=final) for gate in settings.gates]

    window = Window(settings.at_least.total_seconds(), settings.within.total_seconds())
    await watch(context, step, window, ask)
