"""`tidegate rollout diff`: what applying a region's objects would change in its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pipelines.region_objects import region_objects
from rollouts.adapters.kube.connect import connect
from rollouts.kube.model import Json
from rollouts.manifests.against import differences
from rollouts.manifests.difference import Difference, State
from tidegate.cli.commands.rollout_render import Asked, keys_beside, placed, tell_left_out
from tidegate.cli.compose import read_spec
from tidegate.cli.output import print_json
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode


def run(spec_path: Path, asked: Asked, *, exit_code: bool, as_json: bool) -> int:
    """Ask the cluster for dry runs, and print what would be other than it is."""
    spec = read_spec(spec_path)
    fleet, release = placed(spec, asked, keys_beside(spec_path))
    rendered = region_objects(spec, fleet, release)
    tell_left_out(rendered)
    found = asyncio.run(_asked(rendered.objects, fleet.regions[release.region].context, fleet.namespace))
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
    else:
        print("\n".join(line for each in found for line in _lines(each)))
    return _code(found, exit_code=exit_code)


async def _asked(objects: Sequence[Json], context: str, namespace: str) -> tuple[Difference, ...]:
    cluster = connect(context or None, clock=SystemClock(), namespace=namespace)
    try:
        return await differences(cluster, objects)
    finally:
        await cluster.close()


def _lines(found: Difference) -> list[str]:
    """New objects by name only: `tidegate rollout render` prints them."""
    if found.state is State.NOT_OURS:
        return [found.text]
    line = f"{found.kind} {found.name}: {found.state}"
    if found.state is State.REFUSED:
        return [f"{line}; {found.text}"]
    return [line, *(f"  {each}" for each in found.text.splitlines())] if found.state is State.CHANGED else [line]


def _code(found: Sequence[Difference], *, exit_code: bool) -> int:
    states = {each.state for each in found}
    if State.NOT_OURS in states:
        return ExitCode.USAGE
    if State.REFUSED in states:
        return ExitCode.OUTSIDE
    return ExitCode.ROLLED_BACK if exit_code and states - {State.SAME} else ExitCode.DELIVERED
