"""shadow: the canary meets real traffic and no user meets the canary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from gates.model import Outcome, Verdict
from gates.spec import Likeness
from pipelines.context import Context, both_arms
from pipelines.exposure import SHADOW_SOURCES as SOURCES
from pipelines.live import live_feeds, look, terms_for
from pipelines.model import Step
from pipelines.pairing import Pairing
from pipelines.prompts import user_prompts
from pipelines.slos import gates_in
from pipelines.spec import ShadowStage
from pipelines.watch import Window, watch
from rollouts.model import RegionState

PAIR_MAX_TOKENS = 32
"""The longest answer of a pair when the spec says nothing of users."""


async def shadow(context: Context, step: Step) -> None:
    """Mirror user traffic, send paired prompts beside it, watch, stop mirroring."""
    settings, fleet = context.spec.shadow, context.fleet(step)
    assert settings is not None, f"{step.id} without a shadow stage"
    name = f"shadow@{step.region}"
    gates = gates_in(context.spec, settings)
    terms = terms_for(context, name, settings.gates, SOURCES, gates=gates, mirrored=settings.percent / 100)
    trial = context.trials.open(name, terms, step.id)
    state = await fleet.mirror(settings.percent)
    context.journal.traffic(step, state)
    pairing = await _pairing(context, state, settings.gates)
    feeds = live_feeds(context, context.arms(step, canary_role="shadow"), users=False, burn=terms.burn_rate)
    drained = context.clock.now()

    async def ask(final: bool) -> Sequence[Verdict]:
        nonlocal drained
        if sender.done():
            # It only ever ends by a bug, which must not look like a canary that does not answer.
            sender.result()
        now = context.clock.now()
        if final or now - drained >= context.spec.look:
            trial.take(pairing.drain())
            drained = now
        verdicts = await look(trial, feeds, now, final=final)
        return [*verdicts, *_blind(pairing)]

    window = Window(settings.at_least.total_seconds(), settings.within.total_seconds())
    try:
        async with _sending(pairing, settings) as sender:
            await watch(context, step, window, ask)
    finally:
        context.trials.keep(name)
        if control := pairing.control:
            context.journal.tell(step.id, "evidence", f"judge: {control.reason}", control.model_dump(mode="json"))
    context.journal.traffic(step, await fleet.mirror(0))


def _blind(pairing: Pairing) -> Iterator[Verdict]:
    """Nothing speaks against a canary that cannot be asked, and nothing for it."""
    if pairing.not_reached:
        yield Verdict(gate="evidence", outcome=Outcome.ERROR, reason=str(pairing.not_reached))


async def _pairing(context: Context, state: RegionState, asked: Sequence[str]) -> Pairing:
    readers, agreement = context.readers, context.spec.gates.agreement
    return Pairing(
        context.chat,
        context.clock,
        both_arms(state),
        model=context.plan.name,
        prompts=user_prompts(context.spec, context.folder),
        max_tokens=context.spec.traffic.max_tokens if context.spec.traffic else PAIR_MAX_TOKENS,
        judge=await readers.judges() if readers.judges and "judge" in asked else None,
        languages=readers.languages,
        embedder=readers.embedder if agreement and agreement.likeness is Likeness.MEANING else None,
    )


@asynccontextmanager
async def _sending(pairing: Pairing, settings: ShadowStage) -> AsyncIterator[asyncio.Task[None]]:
    """Send pairs meanwhile."""
    sender = asyncio.create_task(pairing.run(per_second=settings.pairs_per_second))
    try:
        yield sender
    finally:
        sender.cancel()
        await asyncio.wait([sender])
