"""shadow: the canary meets real traffic and no user meets the canary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from gates.evaluate import judge
from gates.model import Verdict
from pipelines.context import Context, both_arms
from pipelines.live import errors_verdict
from pipelines.model import Step
from pipelines.pairing import Pairing
from pipelines.prompts import user_prompts
from pipelines.spec import ShadowStage
from pipelines.watch import Window, watch

PAIR_MAX_TOKENS = 32
"""The longest answer of a pair when the spec says nothing of users."""


async def shadow(context: Context, step: Step) -> None:
    """Mirror user traffic, send paired prompts beside it, watch, stop mirroring."""
    settings, fleet = context.spec.shadow, context.fleet(step)
    assert settings is not None, f"{step.id} without a shadow stage"
    state = await fleet.mirror(settings.percent)
    context.journal.traffic(step, state)
    since = context.clock.now()
    pairing = Pairing(
        context.chat,
        context.clock,
        both_arms(state),
        model=context.plan.name,
        prompts=user_prompts(context.spec, context.folder),
        max_tokens=context.spec.traffic.max_tokens if context.spec.traffic else PAIR_MAX_TOKENS,
    )

    async def ask(final: bool) -> Sequence[Verdict]:
        return [await _verdict(context, step, gate, pairing, since, final=final) for gate in settings.gates]

    window = Window(settings.at_least.total_seconds(), settings.within.total_seconds())
    async with _sending(pairing, settings):
        await watch(context, step, window, ask)
    context.journal.traffic(step, await fleet.mirror(0))


@asynccontextmanager
async def _sending(pairing: Pairing, settings: ShadowStage) -> AsyncIterator[None]:
    sender = asyncio.create_task(pairing.run(per_second=settings.pairs_per_second))
    try:
        yield
    finally:
        sender.cancel()
        await asyncio.wait([sender])


async def _verdict(
    context: Context, step: Step, gate: str, pairing: Pairing, since: datetime, *, final: bool
) -> Verdict:
    if gate == "errors":
        # Mirrored requests: no user saw their answers, so only the proxy can count them.
        arms = context.arms(step, canary_role="shadow")
        return await asyncio.to_thread(errors_verdict, context, *arms, since, final=final, users=False)
    if gate == "latency":
        latency = context.spec.gates.latency
        assert latency is not None, "the spec was read without settings for the latency gate"
        return judge(latency, pairing.latencies(latency.metric), deadline_passed=final)
    agreement = context.spec.gates.agreement
    assert agreement is not None, "the spec was read without settings for the agreement gate"
    return judge(agreement, pairing.pairs, deadline_passed=final)
