"""canary: a share of a region's users on the new version, beside the stable, until the gates decide."""

from __future__ import annotations

from collections.abc import Sequence

from gates.model import Verdict
from pipelines.context import Context
from pipelines.live import counters, drift_reference, live_feeds, look, terms_for
from pipelines.model import Step
from pipelines.past import learn
from pipelines.slos import gates_in
from pipelines.watch import Window, refuse_dead_canary, watch
from tidegate.core.beside import beside


async def canary(context: Context, step: Step) -> None:
    """Shift to the step's weight and watch; evidence against the canary is kept from weight to weight."""
    settings = context.spec.canary
    assert settings is not None, f"{step.id} without a canary stage"
    assert step.weight is not None, f"{step.id} without a weight"
    fleet = context.fleet(step)
    refuse_dead_canary(context, await fleet.observe())
    name = f"canary@{step.region}"
    arms = context.arms(step)
    reference = context.trials.reference(name) or await beside(drift_reference, context, arms[0])
    gates = gates_in(context.spec, settings)
    terms = terms_for(context, name, settings.gates, counters(context), gates=gates, reference=reference)
    trial = context.trials.open(name, terms, step.id)
    feeds = live_feeds(context, arms, reference=reference, burn=terms.burn_rate)
    if trial.is_new:
        await learn(trial, feeds, context.clock.now())
    context.journal.traffic(step, await fleet.shift(step.weight))
    for feed in feeds:
        feed.since = context.clock.now()

    async def ask(final: bool) -> Sequence[Verdict]:
        return await look(trial, feeds, context.clock.now(), final=final)

    window = Window(settings.at_least.total_seconds(), settings.within.total_seconds())
    try:
        await watch(context, step, window, ask)
    finally:
        context.trials.keep(name)
