"""git: after a wave's promotions, and before its bake: the repository says what its regions serve."""

from __future__ import annotations

from collections.abc import Sequence

from gates.model import GateOutcome
from pipelines.errors import Stopped
from pipelines.model import Ending, PlanStep
from pipelines.plan.git_changes import WantedFile, image_of, paths_of, subject_line, wanted_of_wave
from pipelines.repository import Applied, SyncSource
from pipelines.run.context import Context
from pipelines.run.git_record import LOOK_SECONDS, SHORT, GitWriter, writer_of
from pipelines.run.regions import health_verdict, refuse_others, refuse_way_back
from rollouts.errors import FleetError
from tidegate.core.threads import call_in_thread
from tidegate.core.units import format_duration


async def record_in_git(context: Context, step: PlanStep) -> None:
    """Commit what the wave's regions serve; then wait until it is applied.

    Raises:
        Stopped: nobody applied it in time; or a region is not well, or somebody else's by now.
        SpecError: a file or a field is not there.
        OutsideError: the repository is away, or does not take it.
    """
    wanted = await _wanted(context, step)
    if not wanted:
        context.journal.note(step.id, "every file speaks for all regions: written with the last wave")
        return
    regions, writer = context.spec.regions.waves[step.wave - 1], writer_of(context, step.id)
    subject = subject_line(context.plan, regions)
    commit = await writer.write(lambda _: wanted, paths_of(wanted), subject)
    writer.note(f"{writer.spec.branch} says version {context.plan.on_trial}: commit {commit[:SHORT]}")
    if writer.access.synced:
        await _applied(context, step, writer, writer.access.synced, commit)
    await _look_after(context, step)


async def _wanted(context: Context, step: PlanStep) -> Sequence[WantedFile]:
    plan, spec, git = context.plan, context.spec, context.spec.git
    assert git is not None, f"{step.id} without `git`"
    # Of a delivery that settled no images, such as one with an engine of its own, the engine knows.
    image = image_of(plan, spec, plan.on_trial) or (await context.prepare(step.id)).image or ""
    return wanted_of_wave(spec, git, step.wave, engine=plan.on_trial, image=image)


async def _look_after(context: Context, step: PlanStep) -> None:
    """While Git is waited for: users are on the version, and nobody else looks."""
    context.journal.check()
    for region in context.spec.regions.waves[step.wave - 1]:
        state = await context.fleets[region].observe()
        refuse_others(state, context.plan.on_trial)
        refuse_way_back(state, context.plan.on_trial)
        verdict = health_verdict(state, context.plan.on_trial)
        if verdict.outcome is GateOutcome.FAIL:
            raise Stopped(Ending.ROLLED_BACK, f"{region}: gate {verdict.gate}: {verdict.reason}")


async def _applied(context: Context, step: PlanStep, writer: GitWriter, source: SyncSource, commit: str) -> None:
    """Return once the tool of every region of the wave has applied the commit, or one after it."""
    sync, regions = writer.spec.sync, list(context.spec.regions.waves[step.wave - 1])
    assert sync is not None, "a tool is waited for that the spec does not name"
    until, told = context.clock.now() + sync.within, dict[str, str]()
    while True:
        await writer.current(())
        for region in list(regions):
            words, done = await _said(writer, source, region, commit)
            if done:
                regions.remove(region)
            if told.get(region) != words:
                limit = "" if done else f"; waiting for commit {commit[:SHORT]} until {until:%H:%M:%S} UTC"
                writer.note(f"{region}: {words}{limit}")
            told[region] = words
        if not regions:
            return
        if context.clock.now() >= until:
            late = "; ".join(f"{region}: {told[region]}" for region in regions)
            waited = format_duration(sync.within)
            raise Stopped(Ending.FAILED, f"commit {commit[:SHORT]} was not applied within {waited}: {late}")
        await _look_after(context, step)
        await context.clock.sleep(LOOK_SECONDS)


async def _said(writer: GitWriter, source: SyncSource, region: str, commit: str) -> tuple[str, bool]:
    """What the tool of a region says, and whether it has applied the commit."""
    try:
        found = await source.applied(region)
    except FleetError as error:
        return str(error), False
    has = await _has(writer, found, commit)
    if has and found.in_sync:
        return f"{found.who} has applied it", True
    at = found.revisions[0][:SHORT] if found.revisions else "no commit"
    return f"{found.who} is at {'it' if has else at}: {found.words}", False


async def _has(writer: GitWriter, found: Applied, commit: str) -> bool:
    for revision in found.revisions:
        if await call_in_thread(writer.access.repository.includes, revision, commit):
            return True
    return False
