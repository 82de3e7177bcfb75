"""Git says what regions serve: one commit once a version is delivered everywhere, or a person has rolled it back.

Users never wait for Git: they are where they belong before. What is committed is whole files, so that writing again
changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256

from pipelines.repository import BranchMoved, GitAway, GitRemote
from pipelines.run.context import Context
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec, filled
from registry.model import number_of
from rollouts.model import Engine
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import TidegateError
from tidegate.core.threads import call_in_thread

TRIES = 20
"""Of a push that somebody else was faster with; each reads the branch again."""
AGAIN_SECONDS = 0.5
LOOK_SECONDS = 10.0
"""Between two looks at a repository that is away."""
SHORT = 10
"""Characters of a commit's id, for people."""
NOBODY = "0"
"""Stands for a version that there is none of."""

EngineOf = Callable[[str, str], Awaitable[Engine]]
"""By region and version: what serves it there."""


def git_access_for(spec: Delivery, clock: Clock) -> GitRemote | None:
    """The repository that says what regions serve; None where the spec names none. Asks nobody yet."""
    return GitRemote(spec.git, clock) if spec.git else None


def git_files(spec: Delivery, regions: Sequence[str], *, engine: str, image: str) -> dict[str, str]:
    """What the files of these regions say once they serve that engine, by path.

    A file that speaks for all regions is among them where these are all.
    """
    assert spec.git is not None, "a repository is written to that the spec names"
    place, _, digest = image.partition("@")
    # A port has a colon too, and a slash behind it.
    head, colon, tail = place.rpartition(":")
    values = {
        "image": image,
        "repository": head if colon and "/" not in tail else place,
        "digest": digest,
        "version": number_of(engine),
        "engine": engine,
        "model": spec.model.name,
        "delivery": spec.metadata.name,
    }
    found: dict[str, str] = {}
    for file in spec.git.files:
        if file.is_of_each_region:
            here = ({"region": region} for region in regions)
            found |= {filled(file.path, each): filled(file.content, {**values, **each}) for each in here}
        elif set(regions) == set(spec.regions.names):
            found[file.path] = filled(file.content, values)
    return found


def message_of(subject: str, trailers: Mapping[str, str]) -> str:
    """A commit's whole message; `trailers` are the lines at its end that programs read."""
    return f"{subject}\n\n" + "".join(f"{name}: {value}\n" for name, value in trailers.items())


async def _push(
    git: GitSpec,
    remote: GitRemote,
    files: Mapping[str, str],
    message: str,
    *,
    note: Callable[[str], None],
    clock: Clock,
) -> str:
    """Commit and push until the branch says so; returns a commit that does.

    Raises:
        TidegateError: the repository does not take it, is away for too long, or moves faster than it can be written.
    """
    until, told, moved = clock.now() + git.patience, False, 0
    while True:
        try:
            return await call_in_thread(remote.write, files, message)
        except BranchMoved as error:
            moved += 1
            if moved == TRIES:
                raise
            note(str(error))
            await clock.sleep(AGAIN_SECONDS)
        # Of a push whose answer was lost the next look at the branch tells whether it has arrived.
        except GitAway as error:
            if clock.now() >= until:
                raise
            if not told:
                note(f"waiting for Git until {until:%H:%M:%S} UTC: {error}")
            told = True
            await clock.sleep(LOOK_SECONDS)


async def say_in_git(context: Context) -> str:
    """Let Git say what all regions serve now.

    Returns:
        What is left to do in Git, in words behind the ending's reason; empty for nothing.
    """
    if context.git is None:
        return ""
    working = asyncio.create_task(_delivered(context, context.git))
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
        return ""
    version = context.plan.on_trial
    return f"; Git does not say version {version} yet: {left}; `tidegate rollback --to {version}` writes it"


async def _delivered(context: Context, remote: GitRemote) -> None:
    spec, plan, journal = context.spec, context.plan, context.journal
    assert spec.git is not None, "a repository without a spec"

    def note(message: str) -> None:
        journal.note("delivery", message)

    own = spec.engine.image.reference if spec.engine.image else ""
    settled = plan.resolved.images.get(plan.on_trial) or (plan.engine.image if plan.engine else "") or own
    # Of a delivery that settled no images, such as one with an engine of its own, the engine knows.
    image = settled or (await context.prepare("delivery")).image or ""
    files = git_files(spec, spec.regions.names, engine=plan.on_trial, image=image)
    subject = f"{plan.version.name} {plan.on_trial} serves {', '.join(plan.regions)}"
    trailers = {
        "Tidegate-Delivery": journal.delivery,
        "Tidegate-Version": plan.version.uri,
        "Tidegate-Previous": plan.in_production,
    }
    commit = await _push(spec.git, remote, files, message_of(subject, trailers), note=note, clock=context.clock)
    note(f"{spec.git.branch} says version {plan.on_trial}: commit {commit[:SHORT]}")


async def write_served(
    spec: Delivery, remote: GitRemote, served: Mapping[str, str], engine_of: EngineOf, note: Callable[[str], None]
) -> list[str]:
    """Write the version of each region, with its image, once a person has rolled them back.

    `served` is the version of each region that was moved; `engine_of` knows the image.

    Returns:
        What went wrong, a line each.
    """
    assert spec.git is not None, "there is a repository that the spec names"
    left = list[str]()
    for version in dict.fromkeys(served.values()):
        regions = [region for region, there in served.items() if there == version]
        try:
            image = (await engine_of(regions[0], version)).image or ""
            files = git_files(spec, regions, engine=version, image=image)
            subject = f"{spec.model.name} {version} again serves {', '.join(regions)}"
            message = message_of(subject, {"Tidegate-Rollback": version})
            commit = await _push(spec.git, remote, files, message, note=note, clock=SystemClock())
            note(f"{spec.git.branch} says so too: commit {commit[:SHORT]}")
        except TidegateError as error:
            # With fewer regions `--to` would move the others too.
            again = f", or by `tidegate rollback --to {version}`" if set(served) == set(spec.regions.names) else ""
            where = f"version {version} of {', '.join(regions)}"
            left.append(f"Git does not say {where} yet: write it there{again}: {error}")
    return left


def refuse_unwritable(spec: Delivery) -> None:
    """Look whether a commit could be pushed to the repository that the spec names; nothing is written.

    Raises:
        TidegateError: it could not.
    """
    if remote := git_access_for(spec, SystemClock()):
        # What nobody serves, so that there is something to push whatever the files say now.
        image = f"nowhere@sha256:{sha256(NOBODY.encode()).hexdigest()}"
        files = git_files(spec, spec.regions.names, engine=NOBODY, image=image)
        remote.write(files, message_of("whether it may be pushed", {}), dry_run=True)
