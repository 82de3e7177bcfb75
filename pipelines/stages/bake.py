"""bake: a wave that was promoted must stay well for a while before the next one starts.

Nothing is on trial in a promoted region any more, so there is no arm beside it. Regions that still serve
the champion are its control, as long as there are some: same time, same users' day, other version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.model import ArmKey, Outcome, Verdict
from pipelines.context import Context
from pipelines.errors import Stopped
from pipelines.live import Feed, counters, live_feeds, take_new, terms_for
from pipelines.model import Ending, Step
from pipelines.trials import RecordedTrial
from pipelines.watch import LOOK_SECONDS, refuse_others
from rollouts.model import RegionState


@dataclass
class _Comparison:
    """A promoted region and what its errors are compared with."""

    trial: RecordedTrial
    feeds: list[Feed]


async def bake(context: Context, step: Step) -> None:
    """Look again and again until the time is over.

    Raises:
        Stopped: when a region of the wave is not well, or fails more requests than one with the champion; or when
            somebody else took it away from the version.
    """
    start = context.clock.monotonic()
    regions = context.spec.regions.waves[step.wave - 1]
    compared = {region: _comparison(context, step, region) for region in regions}
    while True:
        context.journal.check()
        over = context.clock.monotonic() - start >= context.spec.regions.bake.total_seconds()
        for region in regions:
            for verdict in await _verdicts(context, region, compared[region], final=over):
                there = step.model_copy(update={"region": region})
                context.journal.verdict(there, verdict, context.trials.written(step.id))
                # Nothing is on trial: only proof that the region is not well takes it back, not a lack of evidence.
                if verdict.outcome is Outcome.FAIL:
                    raise Stopped(Ending.ROLLED_BACK, f"{region}: gate {verdict.gate}: {verdict.reason}")
        if over:
            return
        await context.clock.sleep(LOOK_SECONDS)


async def _verdicts(context: Context, region: str, compared: _Comparison | None, *, final: bool) -> Sequence[Verdict]:
    state = await context.fleets[region].observe()
    refuse_others(context, state)
    verdicts = [_health(state, context.plan.version.version)]
    if compared:
        await take_new(compared.trial, compared.feeds, context.clock.now(), final=final)
        # There is no deadline by which a promoted region would have to prove anything.
        verdicts += compared.trial.verdicts(deadline_passed=False)
    return verdicts


def _comparison(context: Context, step: Step, region: str) -> _Comparison | None:
    """With one region of a later wave: it still serves the champion. None when there is none, or no errors gate."""
    names = context.plan.regions
    later = names[names.index(context.spec.regions.waves[step.wave - 1][-1]) + 1 :]
    if not later or context.spec.gates.errors is None:
        return None
    name = f"{step.id}/{region}"
    control = ArmKey(region=later[0], role="stable", version=context.plan.champion.version)
    promoted = ArmKey(region=region, role="stable", version=context.plan.version.version)
    terms = terms_for(context, name, ["errors"], {"errors": counters(context)["errors"]})
    return _Comparison(context.trials.open(name, terms, step.id), live_feeds(context, (control, promoted)))


def _health(state: RegionState, version: str) -> Verdict:
    stable = state.stable
    # A warm previous that died is being restarted and costs nobody anything.
    well = stable is not None and stable.ready and stable.version == version
    reason = f"{state.region} is {state.phase} on version {stable.version if stable else 'none'}"
    if state.problem:
        reason += f": {state.problem}"
    return Verdict(gate="health", outcome=Outcome.PASS if well else Outcome.FAIL, reason=reason)
