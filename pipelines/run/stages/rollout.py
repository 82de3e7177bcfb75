"""build, deploy, promote and finalize: the stages that change regions and the registry, and ask no gate."""

from __future__ import annotations

import asyncio

from pipelines.errors import Stopped
from pipelines.model import Ending, PlanStep
from pipelines.ports import Fleet, RemembersWayBack
from pipelines.run.context import Context
from pipelines.run.regions import is_on, needs_undoing, refuse_dead_canary, refuse_foreign_objects, refuse_others
from pipelines.run.rollback import back_to_champion
from pipelines.run.user_answers import require_samples
from registry.conventions import DELIVERY, OUTCOME, REASON
from registry.model import Serving
from rollouts.model import Engine


async def build(context: Context, step: PlanStep) -> None:
    """Download, verify and prepare; then mend what an earlier delivery may have left half done.

    Raises:
        NotOurs: somebody else's objects are where this delivery's would be, in any region; nothing was written.
        Refused: a gate needs samples of users' requests, and engines that serve now cannot keep any.
    """
    fleets = [context.fleets[region] for region in context.plan.regions]
    await refuse_foreign_objects(fleets)
    champion = await _prepare(context, step, "champion")
    await _prepare(context, step, "challenger")
    await asyncio.gather(*(_serve_champion(context, step, fleet, champion) for fleet in fleets))
    await require_samples(context)


async def _prepare(context: Context, step: PlanStep, which: str) -> Engine:
    is_champion = which == "champion"
    version = context.plan.champion if is_champion else context.plan.version
    engine = await (context.prepare_champion(step.id) if is_champion else context.prepare(step.id))
    # Said with the digest, so that the ledger proves which files were served.
    message = f"{which} {version.uri} is here, {len(version.files)} files proven, digest {version.digest[:12]}"
    context.journal.note(step.id, message)
    return engine


async def _serve_champion(context: Context, step: PlanStep, fleet: Fleet, champion: Engine) -> None:
    """An empty region gets the champion; one that is not on it goes back to it."""
    state = await fleet.observe()
    if state.stable is None:
        context.journal.note(step.id, f"{fleet.region}: starting the champion")
        await fleet.deploy(champion)
    elif needs_undoing(state, champion.version):
        context.journal.note(step.id, f"{fleet.region}: back to version {champion.version} first")
        await back_to_champion(context, fleet)


async def deploy(context: Context, step: PlanStep) -> None:
    """Start the challenger next to the stable."""
    # Proves every file once more; that takes a while for a large model.
    engine = await context.prepare(step.id)
    state = await context.fleet(step).deploy(engine)
    context.journal.traffic(step, state)


async def promote(context: Context, step: PlanStep) -> None:
    """Give the region to the challenger; nothing to do when a delivery that died had done it already."""
    fleet = context.fleet(step)
    state = await fleet.observe()
    # Repeated after a crash, the operation may hold already; then there is no canary to look at.
    if not is_on(state, context.plan.on_trial):
        refuse_dead_canary(state, context.plan.on_trial)
        state = await fleet.promote()
    context.journal.traffic(step, state)


async def finalize(context: Context, step: PlanStep) -> None:
    """Champion becomes previous, challenger becomes champion; the version remembers its delivery.

    Raises:
        Stopped: a region serves something else by now; those of earlier waves were last looked at hours ago.
        FleetError: a region cannot be seen.
    """
    for state in await asyncio.gather(*(context.fleets[region].observe() for region in context.plan.regions)):
        refuse_others(state, context.plan.on_trial)
        if not is_on(state, context.plan.on_trial):
            serves = state.stable.version if state.stable else "none"
            raise Stopped(Ending.FAILED, f"{state.region} serves version {serves} by now")
    plan, version = context.plan, context.plan.version
    marks = {OUTCOME: "delivered", REASON: "every gate passed", DELIVERY: context.journal.delivery}
    if plan.engine is not None:
        # What the registry is to keep of the engine that serves now, and of the one before it.
        before = {"before": plan.champion_engine} if plan.is_engine_change and plan.champion_engine else {}
        marks |= Serving(now=plan.engine, **before).tag
    # Both by the ledger's thread: what undoes them, should the delivery end here, comes after them.
    await context.journal.insist(lambda: context.registry.mark(version, marks))
    # Last of all: until every wave has baked, the champion is where everything goes back to.
    await context.journal.insist(lambda: context.registry.promote(version, context.spec.model.serving))
    # Nobody who takes regions back by what they say themselves goes behind a delivery that is over. Who does so at this
    # very moment has taken their Leases: then it ends here, and the aliases with it.
    await asyncio.gather(*(each.settle() for each in context.fleets.values() if isinstance(each, RemembersWayBack)))
    context.journal.note(step.id, f"champion is version {context.plan.on_trial}")
