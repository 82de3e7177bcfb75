"""Git says what regions serve: a commit for each wave that was promoted, and one where it goes back.

A commit states fields, so that writing again changes nothing; that one is to be pushed stands in the ledger before it
is. Users never wait for Git: they are moved in the cluster, before this and on the way back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeVar

from gates.model import GateOutcome
from pipelines.errors import Stopped
from pipelines.events.payloads import GitChange, StepUndone
from pipelines.model import Ending, Plan, PlanStep, StageName
from pipelines.plan.git_changes import (
    FieldEdit,
    WantedFile,
    changes_to,
    image_of,
    message_of,
    trailers_of,
    wanted_of_regions,
    wanted_of_wave,
)
from pipelines.repository import (
    READABLE_SYNC,
    Applied,
    BranchFiles,
    BranchMoved,
    GitAway,
    GitRemote,
    SyncUnreadable,
    ToolInCluster,
)
from pipelines.run.context import Context
from pipelines.run.regions import promoted_verdict
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec
from rollouts.errors import FleetError, Forbidden, KubeconfigWrong, NotFound
from rollouts.model import Engine
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.threads import call_in_thread
from tidegate.core.units import format_duration

TRIES = 20
"""Of a push that somebody else was faster with; each reads the branch again."""
AGAIN_SECONDS = 0.5
LOOK_SECONDS = 10.0
"""Between two looks at a repository that is away, and whether a commit is applied."""
SHORT = 10
"""Characters of a commit's id, for people."""
NOBODY = "0"
"""Stands for a delivery that there is none of."""

Answer = TypeVar("Answer")
EngineOf = Callable[[str, str], Awaitable[Engine]]
"""By region and version: what serves it there."""
GitEdits = Mapping[int, tuple[FieldEdit, ...]]
"""What would be committed, wave by wave."""


@dataclass(frozen=True)
class GitWriter:
    """Brings files of a repository to what they have to say."""

    spec: GitSpec
    remote: GitRemote
    note: Callable[[str], None]
    say: Callable[[GitChange, str], Awaitable[None]] | None = None
    """Returns once it is durable; None for a rollback by a person, of which no ledger is written."""
    clock: Clock = field(default_factory=SystemClock)

    async def read(self, paths: Sequence[str] = ()) -> BranchFiles:
        """The branch as it is now.

        Raises:
            GitAway: for longer than the spec's patience.
            UsageError: there is no such branch.
        """
        since, told = self.clock.now(), False
        while True:
            try:
                return await call_in_thread(self.remote.read, paths)
            except GitAway as error:
                until = since + self.spec.patience
                if self.clock.now() >= until:
                    raise
                if not told:
                    self.note(f"waiting for Git until {until:%H:%M:%S} UTC: {error}")
                told = True
            await self.clock.sleep(LOOK_SECONDS)

    async def write(
        self,
        wanted: Sequence[WantedFile],
        subject: str,
        trailers: Mapping[str, str],
        *,
        reason: str = "",
        instead_of: Sequence[WantedFile] | None = None,
    ) -> str:
        """Commit and push until the branch says what is wanted; returns a commit that does.

        Args:
            wanted: what the files have to say.
            subject: the commit's first line.
            trailers: its last lines.
            reason: a line more.
            instead_of: what they say now; a field that says anything else stays as it is.

        Raises:
            SpecError: a file or a field is not there.
            GitRefused: the repository does not take it.
            OutsideError: the branch moves faster than it can be written.
        """
        for number in range(TRIES):
            found = await self.read([each.path for each in wanted])
            changes = changes_to(wanted, found.files, instead_of)
            if changes.others and not number:
                self.note(f"changed by others since, and left as it is: {', '.join(changes.others)}")
            if not changes.edits:
                return found.commit
            written = "; ".join(f"{each.path}: {each.field} becomes {each.after}" for each in changes.edits)
            if self.say:
                await self.say(GitChange(), f"{self.spec.branch}: {written}")
            message = message_of(subject, changes.edits, trailers, reason=reason)
            try:
                commit = await call_in_thread(self.remote.commit, found, changes.files, message)
            # Of one whose answer was lost the next look at the branch tells whether it has arrived.
            except (BranchMoved, GitAway) as error:
                self.note(str(error))
                await self.clock.sleep(AGAIN_SECONDS)
            else:
                if self.say:
                    await self.say(GitChange(commit=commit), f"{self.spec.branch}: pushed commit {commit[:SHORT]}")
                return commit
        where = f"branch {self.spec.branch} of {self.spec.repository}"
        raise OutsideError(
            f"{where} was pushed to by others {TRIES} times meanwhile", hint="carry the delivery on later"
        )


def _writer_of(context: Context, step: str, *, waits: bool) -> GitWriter:
    """Of a delivery's step. On the way back nobody `waits` for the ledger."""
    git, remote = context.spec.git, context.git
    assert git is not None and remote is not None, f"{step} without a repository"

    async def say(change: GitChange, message: str) -> None:
        if waits:
            await context.journal.say(step, change, message)
        else:
            context.journal.tell(step, change, message)

    def note(message: str) -> None:
        context.journal.tell(step, GitChange(), message)

    return GitWriter(git, remote, note, say, context.clock)


async def record_in_git(context: Context, step: PlanStep) -> None:
    """After a wave's promotions, and before its bake: commit what its regions serve, and wait until it is applied.

    Raises:
        Stopped: nobody applied it in time; or a region is not well, or somebody else's by now.
        SpecError: a file or a field is not there.
        OutsideError: the repository is away, or does not take it.
    """
    spec, plan, writer = context.spec, context.plan, _writer_of(context, step.id, waits=True)
    # Of a delivery that settled no images, such as one with an engine of its own, the engine knows.
    image = image_of(plan, spec, plan.on_trial) or (await context.prepare(step.id)).image or ""
    wanted = wanted_of_wave(spec, writer.spec, step.wave, engine=plan.on_trial, image=image)
    if not wanted:
        context.journal.note(step.id, "every file speaks for all regions: written with the last wave")
        return
    subject = f"{plan.version.name} {plan.on_trial} serves {', '.join(spec.regions.waves[step.wave - 1])}"
    trailers = trailers_of(context.journal.delivery, plan.version.uri, plan.in_production)
    commit = await writer.write(wanted, subject, trailers)
    writer.note(f"{writer.spec.branch} says version {plan.on_trial}: commit {commit[:SHORT]}")
    if writer.remote.synced:
        await _applied(context, step, writer, writer.remote.synced, commit)
    await _look_after(context, step)


async def _look_after(context: Context, step: PlanStep) -> None:
    """While Git is waited for: users are on the version, and nobody else looks."""
    context.journal.check()
    for region in context.spec.regions.waves[step.wave - 1]:
        verdict = await promoted_verdict(context.fleets[region], context.plan.on_trial)
        if verdict.outcome is GateOutcome.FAIL:
            raise Stopped(Ending.ROLLED_BACK, f"{region}: gate {verdict.gate}: {verdict.reason}")


async def _applied(context: Context, step: PlanStep, writer: GitWriter, source: ToolInCluster, commit: str) -> None:
    """Return once the tool of every region of the wave has applied the commit, or one after it."""
    sync, regions = writer.spec.sync, list(context.spec.regions.waves[step.wave - 1])
    assert sync is not None, "a tool is waited for that the spec does not name"
    until, told = context.clock.now() + sync.within, dict[str, str]()
    while True:
        await writer.read()
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


async def _said(writer: GitWriter, source: ToolInCluster, region: str, commit: str) -> tuple[str, bool]:
    """What the tool of a region says, and whether it has applied the commit."""
    try:
        found: Applied = await source.applied(region)
    except FleetError as error:
        return str(error), False
    includes = writer.remote.includes
    has = any([await call_in_thread(includes, revision, commit) for revision in found.revisions])
    if has and found.in_sync:
        return f"{found.who} has applied it", True
    at = found.revisions[0][:SHORT] if found.revisions else "no commit"
    return f"{found.who} is at {'it' if has else at}: {found.words}", False


async def write_back(context: Context, reason: str) -> str:
    """Let Git say what regions serve again, where this delivery has let it say something else.

    Returns:
        What is left to do in Git, in words behind the ending's reason; empty for nothing.
    """
    steps = [step for step in context.plan.steps if step.stage is StageName.GIT and step.id in context.journal.begun]
    if context.git is None or not steps or not context.journal.pushed:
        return ""
    working = asyncio.create_task(_withdraw(context, steps, reason))
    enough = asyncio.create_task(context.impatient.wait())
    await asyncio.wait({working, enough}, return_when=asyncio.FIRST_COMPLETED)
    enough.cancel()
    working.cancel()
    try:
        await working
    except asyncio.CancelledError:
        left = "it was not waited for"
    except TidegateError as error:
        left = str(error)
    else:
        for step in steps:
            context.journal.tell(step.id, StepUndone(), "Git says again what is served")
        return ""
    return f"; Git may still say version {context.plan.on_trial}: {left}"


async def _withdraw(context: Context, steps: Sequence[PlanStep], reason: str) -> None:
    """Back to what was in production before, where Git says what these steps wrote; what others wrote since stays.

    Raises:
        TidegateError: it could not be written.
    """
    plan, spec, last = context.plan, context.spec, steps[-1].id
    writer = _writer_of(context, last, waits=False)

    def of_steps(engine: str, image: str) -> list[WantedFile]:
        waves = (wanted_of_wave(spec, writer.spec, step.wave, engine=engine, image=image) for step in steps)
        return [file for wave in waves for file in wave]

    now = image_of(plan, spec, plan.on_trial) or (await context.prepare(last)).image or ""
    then = image_of(plan, spec, plan.in_production) or (await context.prepare_champion(last)).image or ""
    wanted = of_steps(plan.in_production, then)
    subject = f"{plan.version.name} {plan.in_production} again serves {', '.join(plan.regions)}"
    trailers = trailers_of(context.journal.delivery, plan.champion.uri, plan.on_trial)
    await writer.write(wanted, subject, trailers, reason=reason, instead_of=of_steps(plan.on_trial, now))


async def write_served(
    spec: Delivery, remote: GitRemote, served: Mapping[str, str], engine_of: EngineOf, note: Callable[[str], None]
) -> list[str]:
    """Write the version of each region, with its image, once a person has rolled them back.

    Args:
        spec: the delivery's.
        remote: its repository.
        served: the version of each region that was moved.
        engine_of: knows the image.
        note: hears of each commit.

    Returns:
        What went wrong, a line each.
    """
    assert spec.git is not None, "there is a repository that the spec names"
    writer, left = GitWriter(spec.git, remote, note), list[str]()
    for version in dict.fromkeys(served.values()):
        regions = [region for region, there in served.items() if there == version]
        whole = set(regions) == set(spec.regions.names)
        try:
            image = (await engine_of(regions[0], version)).image or ""
            wanted = wanted_of_regions(spec, spec.git, regions, engine=version, image=image, whole=whole)
            subject = f"{spec.model.name} {version} again serves {', '.join(regions)}"
            commit = await writer.write(wanted, subject, {"Tidegate-Rollback": version})
            note(f"{spec.git.branch} says so too: commit {commit[:SHORT]}")
        except TidegateError as error:
            # With fewer regions `--to` would move the others too.
            again = f", or by `tidegate rollback --to {version}`" if set(served) == set(spec.regions.names) else ""
            where = f"version {version} of {', '.join(regions)}"
            left.append(f"Git does not say {where} yet: write it there{again}: {error}")
    return left


def preview_git(spec: Delivery, remote: GitRemote | None, plan: Plan | None = None) -> GitEdits | None:
    """Read the repository's files, and look whether a commit could be pushed; nothing is written, here or there.

    Returns:
        What a delivery by that plan would commit, by wave; None without a plan, and where the spec names no repository.

    Raises:
        TidegateError: a file cannot be read, has not the field that is to be written, or nothing may be pushed.
    """
    git = spec.git
    if git is None or remote is None:
        return None
    # What nobody serves, so that there is something to push whatever the files say now.
    image = f"nowhere@sha256:{sha256(NOBODY.encode()).hexdigest()}"
    rehearsed = wanted_of_regions(spec, git, spec.regions.names, engine=NOBODY, image=image, whole=True)
    found = remote.read([each.path for each in rehearsed])
    changes = changes_to(rehearsed, found.files)
    message = message_of("whether it may be pushed", changes.edits, trailers_of(NOBODY, NOBODY, NOBODY))
    remote.commit(found, changes.files, message, dry_run=True)
    if plan is None:
        return None
    files, waves = dict(found.files), dict[int, tuple[FieldEdit, ...]]()
    for wave in range(1, len(spec.regions.waves) + 1):
        image = image_of(plan, spec, plan.on_trial)
        changes = changes_to(wanted_of_wave(spec, git, wave, engine=plan.on_trial, image=image), files)
        waves[wave] = changes.edits
        files |= changes.files
    return waves


def refuse_unreadable_sync(spec: Delivery, remote: GitRemote | None) -> None:
    """Look whether the tool that applies the files can be asked: a delivery does so when all users are on the version.

    A cluster that is away now is no reason to refuse: a delivery waits for it.

    Raises:
        SyncUnreadable: it is not there, or may not be read.
    """
    if remote and remote.synced:
        source, regions = remote.synced, spec.regions.names

        async def ask_every_region() -> list[Applied | BaseException]:
            # All of them to their end: one that was cancelled within a request would leave its connection open.
            return await asyncio.gather(*map(source.applied, regions), return_exceptions=True)

        for region, error in zip(regions, asyncio.run(ask_every_region()), strict=True):
            if isinstance(error, NotFound | Forbidden | KubeconfigWrong):
                raise SyncUnreadable(f"{region}: {error.message}", hint=READABLE_SYNC) from error
            if isinstance(error, BaseException) and not isinstance(error, FleetError):
                raise error
