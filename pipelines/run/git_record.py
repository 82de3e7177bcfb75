"""Writes to Git what regions serve, and takes it back.

What is to be pushed stands in the ledger before it is: whatever dies in between, the next process finds the fields as
they were. Users never wait for Git: they are moved in the cluster, before this and on the way back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipelines.events.payloads import GitChange, StepUndone
from pipelines.model import StageName
from pipelines.plan.git_changes import (
    FileChanges,
    WantedFile,
    back_line,
    changes_to,
    message_of,
    paths_of,
    taking_back,
    trailers_of,
    wanted_of_regions,
)
from pipelines.repository import LOOKED_AT_AGAIN, BranchFiles, BranchMoved, GitAccess, GitAway
from pipelines.run.context import Context
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec
from rollouts.model import Engine
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.threads import call_in_thread

TRIES = 20
"""Of a push that somebody else was faster with; each reads the branch again."""
AGAIN_SECONDS = 0.5
LOOK_SECONDS = 10.0
"""Between two looks whether it is applied."""
SHORT = 10
"""Characters of a commit's id, for people."""

Say = Callable[[GitChange, str], Awaitable[None]]
Note = Callable[[str], None]
Desired = Callable[[BranchFiles], Sequence[WantedFile]]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class GitWriter:
    """Brings files of a repository to what they have to say."""

    spec: GitSpec
    access: GitAccess
    clock: Clock
    trailers: Mapping[str, str]
    """The last lines of every commit's message; the first names the delivery."""
    say: Say
    """Returns once it is durable."""
    note: Note

    @property
    def where(self) -> str:
        """The branch, for people."""
        return f"branch {self.spec.branch} of {self.spec.repository}"

    async def current(self, paths: Sequence[str]) -> BranchFiles:
        """The files of the branch as they are now.

        Raises:
            UsageError: there is no such branch.
        """
        return await self._patiently(lambda: self.access.repository.read(paths))

    async def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """What a call to the repository answers, tried again while it is away.

        Raises:
            GitAway: for longer than the spec's patience.
        """
        since, told = self.clock.now(), False
        while True:
            try:
                return await call_in_thread(call)
            except GitAway as error:
                if self.clock.now() - since >= self.spec.patience:
                    raise
                if not told:
                    until = since + self.spec.patience
                    self.note(f"waiting for Git until {until:%H:%M:%S} UTC: {error}")
                told = True
            await self.clock.sleep(LOOK_SECONDS)

    async def write(self, desired: Desired, paths: Sequence[str], subject: str, *, reason: str = "") -> str:
        """Commit and push until the branch says what is wanted; returns the commit that does.

        Args:
            desired: what the files have to say, by what they say now.
            paths: of these files.
            subject: the commit's first line.
            reason: a line more.

        Raises:
            SpecError: a file or a field is not there.
            GitRefused: the repository does not take it.
            OutsideError: the branch moves faster than it can be written.
        """
        for _ in range(TRIES):
            found = await self.current(paths)
            changes = changes_to(desired(found), found.files)
            if not changes.edits:
                return await self._written_before(found)
            try:
                return await self._pushed(found, changes, subject, reason)
            except BranchMoved as error:
                self.note(str(error))
                await self.clock.sleep(AGAIN_SECONDS)
        raise OutsideError(
            f"{self.where} was pushed to by others {TRIES} times meanwhile", hint="carry the delivery on later"
        )

    async def _pushed(self, found: BranchFiles, changes: FileChanges, subject: str, reason: str) -> str:
        written = "; ".join(f"{each.path}: {each.field} becomes {each.after}" for each in changes.edits)
        await self.say(GitChange(edits=changes.edits), f"{self.spec.branch}: {written}")
        message = message_of(subject, changes.edits, self.trailers, reason=reason)
        try:
            commit = await call_in_thread(self.access.repository.commit, found, changes.files, message)
        except GitAway:
            # It may have arrived: the next look at the branch tells.
            await self.current(())
            raise BranchMoved(f"{self.where}: the answer to a push was lost", hint=LOOKED_AT_AGAIN) from None
        await self.say(GitChange(commit=commit), f"{self.spec.branch}: pushed commit {commit[:SHORT]}")
        return commit

    async def _written_before(self, found: BranchFiles) -> str:
        """Our own commit, where it is one of the last; else the one that was read."""
        name, value = next(iter(self.trailers.items()))
        own = await self._patiently(lambda: self.access.repository.written_by(f"{name}: {value}"))
        return own or found.commit


def writer_of(context: Context, step: str, *, waits: bool = True) -> GitWriter:
    """Of a delivery's step. On the way back nobody `waits` for the ledger."""
    git, access = context.spec.git, context.git
    assert git is not None, "the spec names no repository"
    assert access is not None, "nobody has opened the repository"

    async def say(change: GitChange, message: str) -> None:
        if waits:
            await context.journal.say(step, change, message)
        else:
            context.journal.tell(step, change, message)

    def note(message: str) -> None:
        context.journal.tell(step, GitChange(), message)

    plan, delivery = context.plan, context.journal.delivery
    versions = (plan.version.uri, plan.in_production) if waits else (plan.champion.uri, plan.on_trial)
    return GitWriter(git, access, context.clock, trailers_of(delivery, *versions), say, note)


async def write_back(context: Context, reason: str) -> str:
    """Let Git say what regions serve again, where this delivery has let it say something else.

    Returns:
        What is left to do in Git, in words behind the ending's reason; empty for nothing.
    """
    steps = [step.id for step in context.plan.steps if step.stage is StageName.GIT and step.id in context.journal.begun]
    changes = [GitChange.of(event) for event in context.journal.pushed]
    if context.git is None or not steps or not changes:
        return ""
    writer = writer_of(context, steps[-1], waits=False)
    subject = back_line(context.plan.version.name, context.plan.in_production, context.plan.regions)
    working = asyncio.create_task(_withdraw(writer, changes, subject, reason))
    enough = asyncio.create_task(context.impatient.wait())
    await asyncio.wait({working, enough}, return_when=asyncio.FIRST_COMPLETED)
    enough.cancel()
    working.cancel()
    try:
        await working
        left = ""
    except asyncio.CancelledError:
        left = "it was not waited for"
    except TidegateError as error:
        left = str(error)
    for step in steps if not left else ():
        context.journal.tell(step, StepUndone(), "Git says again what it said before")
    return f"; Git may still say version {context.plan.on_trial}: {left}" if left else ""


async def _withdraw(writer: GitWriter, changes: Sequence[GitChange], subject: str, reason: str) -> None:
    """Take back what these changes have written, field by field; what others have written since stays.

    Raises:
        TidegateError: it could not be taken back.
    """
    edits = [edit for change in changes for edit in change.edits]
    paths = tuple(dict.fromkeys(edit.path for edit in edits))

    def desired(found: BranchFiles) -> Sequence[WantedFile]:
        return taking_back(edits, found.files)[0]

    found = await writer.current(paths)
    others = taking_back(edits, found.files)[1]
    if others:
        writer.note(f"changed by others since, and left as it is: {', '.join(others)}")
    if changes_to(desired(found), found.files).edits:
        commit = await writer.write(desired, paths, subject, reason=reason)
        writer.note(f"Git says what it said before: commit {commit[:SHORT]}")


EngineOf = Callable[[str, str], Awaitable[Engine]]
"""By region and version: what serves it there."""


async def write_served(
    spec: Delivery, access: GitAccess, served: Mapping[str, str], engine_of: EngineOf, note: Note
) -> list[str]:
    """Write the version of each region, with its image, once a person has rolled them back.

    Args:
        spec: the delivery's.
        access: to its repository.
        served: the version of each region that was moved.
        engine_of: knows the image.
        note: hears of each commit.

    Returns:
        What went wrong, a line each.
    """
    left: list[str] = []
    for version in dict.fromkeys(served.values()):
        regions = [region for region, there in served.items() if there == version]
        try:
            engine = await engine_of(regions[0], version)
            await _write_version(spec, access, regions, engine, note)
        except TidegateError as error:
            # With fewer regions `--to` would move the others too.
            again = f", or by `tidegate rollback --to {version}`" if set(served) == set(spec.regions.names) else ""
            where = f"version {version} of {', '.join(regions)}"
            left.append(f"Git does not say {where} yet: write it there{again}: {error}")
    return left


async def _write_version(spec: Delivery, access: GitAccess, regions: list[str], engine: Engine, note: Note) -> None:
    git, version = spec.git, engine.version
    assert git is not None, "there is access to what the spec names"

    async def unrecorded(*_: object) -> None:
        """No ledger is written: fields are stated, and need no way back."""

    writer = GitWriter(git, access, SystemClock(), {"Tidegate-Rollback": version}, unrecorded, note)
    wanted = wanted_of_regions(spec, git, regions, engine=version, image=engine.image or "")
    paths = paths_of(wanted)
    if changes_to(wanted, (await writer.current(paths)).files).edits:
        commit = await writer.write(lambda _: wanted, paths, back_line(spec.model.name, version, regions))
        note(f"{git.branch} says so too: commit {commit[:SHORT]}")
