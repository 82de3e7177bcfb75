"""build: both versions become engines, and every region serves the champion before anything is tried."""

from __future__ import annotations

import asyncio
from functools import partial

from pipelines.context import Context
from pipelines.model import Step
from pipelines.ports import Fleet
from pipelines.strangers import refuse_strangers
from pipelines.unwind import back_to_champion, needs_undoing
from rollouts.model import Engine


async def build(context: Context, step: Step) -> None:
    """Download, verify and prepare; then mend what an earlier delivery may have left half done.

    Raises:
        NotOurs: somebody else's objects are where this delivery's would be, in any region; nothing was written.
    """
    fleets = [context.fleets[region] for region in context.plan.regions]
    await refuse_strangers(fleets)
    champion = await _prepare(context, step, "champion")
    await _prepare(context, step, "challenger")
    await asyncio.gather(*(_serve_champion(context, step, fleet, champion) for fleet in fleets))


async def _prepare(context: Context, step: Step, which: str) -> Engine:
    version = context.plan.champion if which == "champion" else context.plan.version
    engine = await context.engines.prepare(version, partial(context.journal.tell, step.id, "evidence"))
    # Said with the digest, so that the ledger proves which files were served.
    message = f"{which} {version.uri} is here, {len(version.files)} files proven, digest {version.digest[:12]}"
    context.journal.tell(step.id, "evidence", message)
    return engine


async def _serve_champion(context: Context, step: Step, fleet: Fleet, champion: Engine) -> None:
    """An empty region gets the champion; one that is not on it goes back to it."""
    state = await fleet.observe()
    if state.stable is None:
        context.journal.tell(step.id, "evidence", f"{fleet.region}: starting the champion")
        await fleet.deploy(champion)
    elif needs_undoing(state, champion.version):
        context.journal.tell(step.id, "evidence", f"{fleet.region}: back to version {champion.version} first")
        await back_to_champion(context, fleet)
