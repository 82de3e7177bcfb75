"""Lets Git say what regions serve once a person has taken them back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from pipelines.plan.git_changes import back_line, changes_to, paths_of, wanted_of_regions
from pipelines.run.git_record import SHORT, GitWriter
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec
from rollouts.model import Engine
from tidegate.app.wiring.git.access import git_access_for
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError
from tidegate.core.process import note

EngineOf = Callable[[str, str], Awaitable[Engine]]
"""By region and version: what serves it there."""


async def write_served(spec: Delivery, git: GitSpec, served: Mapping[str, str], engine_of: EngineOf) -> list[str]:
    """Write the version of each region, with its image.

    Args:
        spec: the delivery's.
        git: its repository.
        served: the version of each region that was moved.
        engine_of: knows the image.

    Returns:
        What went wrong, a line each.
    """
    left: list[str] = []
    for version in dict.fromkeys(served.values()):
        regions = [region for region, there in served.items() if there == version]
        try:
            engine = await engine_of(regions[0], version)
            await _write(spec, git, regions, engine)
        except TidegateError as error:
            # With fewer regions `--to` would move the others too.
            again = f", or by `tidegate rollback --to {version}`" if set(served) == set(spec.regions.names) else ""
            where = f"version {version} of {', '.join(regions)}"
            left.append(f"Git does not say {where} yet: write it there{again}: {error}")
    return left


async def _write(spec: Delivery, git: GitSpec, regions: list[str], engine: Engine) -> None:
    access, version = git_access_for(spec, SystemClock()), engine.version
    assert access is not None, "the spec names no repository"

    async def unrecorded(*_: object) -> None:
        """No ledger is written: fields are stated, and need no way back."""

    writer = GitWriter(git, access, SystemClock(), {"Tidegate-Rollback": version}, unrecorded, note)
    wanted = wanted_of_regions(spec, git, regions, engine=version, image=engine.image or "")
    paths = paths_of(wanted)
    if changes_to(wanted, (await writer.current(paths)).files).edits:
        commit = await writer.write(lambda _: wanted, paths, back_line(spec.model.name, version, regions))
        note(f"{git.branch} says so too: commit {commit[:SHORT]}")
