"""canary: a share of a region's users on the new version, beside the stable, until the gates decide."""

from __future__ import annotations

from collections.abc import Sequence

from gates.model import Verdict
from pipelines.context import Context
from pipelines.live import errors_verdict, latency_verdict
from pipelines.model import Step
from pipelines.watch import Window, watch


async def canary(context: Context, step: Step) -> None:
    """Shift to the step's weight and watch."""
    settings = context.spec.canary
    assert settings is not None and step.weight is not None, f"{step.id} without a canary stage"
    context.journal.traffic(step, await context.fleet(step).shift(step.weight))
    since = context.clock.now()

    async def ask(final: bool) -> Sequence[Verdict]:
        verdicts = []
        if "latency" in settings.gates:
            verdicts.append(latency_verdict(context, step, since, final=final))
        if "errors" in settings.gates:
            verdicts.append(errors_verdict(context, step, since, final=final))
        return verdicts

    window = Window(settings.at_least.total_seconds(), settings.within.total_seconds())
    await watch(context, step, window, ask)
