"""What a delivery would write to Git, and whether it may; nothing is written, here or there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from pipelines.model import Plan
from pipelines.plan.git_changes import (
    changes_to,
    edit_line,
    image_of,
    message_of,
    paths_of,
    trailers_of,
    wanted_of_regions,
    wanted_of_wave,
)
from pipelines.repository import READABLE_SYNC, FieldEdit, GitAccess, SyncSource, SyncUnreadable
from pipelines.spec.delivery import Delivery
from rollouts.errors import FleetError, Forbidden, KubeconfigWrong, NotFound

NOBODY = "0"
"""Stands for a delivery that there is none of."""


@dataclass(frozen=True)
class GitPreview:
    """What would be committed, wave by wave."""

    branch: str
    waves: Mapping[int, tuple[FieldEdit, ...]]

    @property
    def lines(self) -> tuple[str, ...]:
        """The same for people; one where Git says it all already."""
        found = tuple(self._lines())
        return found or (f"Git says it all already on {self.branch}: nothing would be committed",)

    def _lines(self) -> Iterator[str]:
        for wave, edits in self.waves.items():
            for edit in edits:
                yield f"git@{wave}: on {self.branch}, {edit_line(edit)}"


def preview_git(spec: Delivery, access: GitAccess | None, plan: Plan, images: Mapping[str, str]) -> GitPreview | None:
    """Read the repository's files; None where the spec names none.

    Args:
        spec: the delivery's.
        access: to the repository.
        plan: says which engine is delivered.
        images: that were looked up for it, by engine; one that is unknown is not compared.

    Raises:
        TidegateError: a file cannot be read, or has not the field that is to be written.
    """
    git = spec.git
    if git is None or access is None:
        return None
    image = images.get(plan.on_trial) or image_of(plan, spec, plan.on_trial)
    found = access.repository.read(paths_of(wanted_of_regions(spec, git, engine=plan.on_trial, image=image)))
    files, waves = dict(found.files), {}
    for wave in range(1, len(spec.regions.waves) + 1):
        wanted = wanted_of_wave(spec, git, wave, engine=plan.on_trial, image=image)
        changes = changes_to(wanted, files)
        waves[wave] = changes.edits
        files |= changes.files
    return GitPreview(git.branch, waves)


def refuse_unwritable_git(spec: Delivery, access: GitAccess | None) -> None:
    """Look whether every field is there and whether a commit could be pushed, before anything begins.

    Raises:
        TidegateError: no; nothing was written.
    """
    git = spec.git
    if git is None or access is None:
        return
    # What nobody serves, so that there is something to push whatever the files say now.
    image = f"nowhere@sha256:{sha256(NOBODY.encode()).hexdigest()}"
    wanted = wanted_of_regions(spec, git, engine=NOBODY, image=image)
    found = access.repository.read(paths_of(wanted))
    changes = changes_to(wanted, found.files)
    message = message_of("whether it may be pushed", changes.edits, trailers_of(NOBODY, NOBODY, NOBODY))
    access.repository.commit(found, changes.files, message, dry_run=True)


def refuse_unreadable_sync(spec: Delivery, access: GitAccess | None) -> None:
    """Look whether the tool that applies the files can be asked: a delivery does so when all users are on the version.

    A cluster that is away now is no reason to refuse: a delivery waits for it.

    Raises:
        SyncUnreadable: it is not there, or may not be read.
    """
    if access and access.synced:
        asyncio.run(_ask_every_region(access.synced, spec.regions.names))


async def _ask_every_region(source: SyncSource, regions: Iterable[str]) -> None:
    async def ask(region: str) -> None:
        try:
            await source.applied(region)
        except (NotFound, Forbidden, KubeconfigWrong) as error:
            raise SyncUnreadable(f"{region}: {error.message}", hint=READABLE_SYNC) from error
        except FleetError:
            return

    # All of them to their end: one that was cancelled within a request would leave its connection open.
    for answer in await asyncio.gather(*map(ask, regions), return_exceptions=True):
        if answer is not None:
            raise answer
