"""bake: a wave that was promoted must stay well for a while before the next one starts.

Nothing is on trial in a promoted region any more, so there is no arm beside it. Regions that still serve
the champion are its control, as long as there are some: same time, same users' day, other version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from gates.model import ArmKey, Outcome, Verdict
from pipelines.context import Context
from pipelines.errors import Stopped
from pipelines.live import errors_verdict
from pipelines.model import Ending, Step
from pipelines.watch import LOOK_SECONDS
from rollouts.model import RegionState


async def bake(context: Context, step: Step) -> None:
    """Look again and again until the time is over.

    Raises:
        Stopped: when a region of the wave is not well, or fails more requests than one with the champion.
    """
    since, start = context.clock.now(), context.clock.monotonic()
    while True:
        for region in context.spec.regions.waves[step.wave - 1]:
            for verdict in await _verdicts(context, region, since):
                context.journal.verdict(step.model_copy(update={"region": region}), verdict)
                # Nothing is on trial: only proof that the region is not well takes it back, not a lack of evidence.
                if verdict.outcome is Outcome.FAIL:
                    raise Stopped(Ending.ROLLED_BACK, f"{region}: gate {verdict.gate}: {verdict.reason}")
        if context.clock.monotonic() - start >= context.spec.regions.bake.total_seconds():
            return
        await context.clock.sleep(LOOK_SECONDS)


async def _verdicts(context: Context, region: str, since: datetime) -> list[Verdict]:
    verdicts = [_health(await context.fleets[region].observe(), context.plan.version.version)]
    promoted = ArmKey(region=region, role="stable", version=context.plan.version.version)
    for control in _controls(context, region):
        if context.spec.gates.errors:
            champion = ArmKey(region=control, role="stable", version=context.plan.champion.version)
            verdicts.append(await asyncio.to_thread(errors_verdict, context, champion, promoted, since, final=False))
    return verdicts


def _controls(context: Context, region: str) -> Iterator[str]:
    """One region of a later wave: it still serves the champion."""
    names = context.plan.regions
    wave = next(wave for wave in context.spec.regions.waves if region in wave)
    later = names[names.index(wave[-1]) + 1 :]
    yield from later[:1]


def _health(state: RegionState, version: str) -> Verdict:
    stable = state.stable
    # A warm previous that died is being restarted and costs nobody anything.
    well = stable is not None and stable.ready and stable.version == version
    reason = f"{state.region} is {state.phase} on version {stable.version if stable else 'none'}"
    if state.problem:
        reason += f": {state.problem}"
    return Verdict(gate="health", outcome=Outcome.PASS if well else Outcome.FAIL, reason=reason)
