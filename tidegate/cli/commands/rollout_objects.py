"""`tidegate rollout render` and `diff`: the objects of one region, and what applying them would change."""

from __future__ import annotations

from collections.abc import Sequence

from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.diff import DiffState, ObjectDiff
from tidegate.app.clusters import region_objects
from tidegate.app.clusters.region_objects import RegionRelease
from tidegate.cli.output import Output, print_data, print_objects, say
from tidegate.cli.rollout_options import ReleaseOptions
from tidegate.core.errors import ExitCode


def render_objects(asked: ReleaseOptions, parts: Sequence[RenderPart], *, against: bool, output: Output) -> int:
    """Print the objects; nothing is printed that would take over somebody else's."""
    objects = region_objects.render_objects(RegionRelease(**vars(asked)), parts, against=against).objects
    print_objects(objects, output)
    return 0


def diff_objects(asked: ReleaseOptions, *, exit_code: bool, output: Output) -> int:
    """Print what would be other than it is."""
    found = region_objects.diff_objects(RegionRelease(**vars(asked)))
    if output.is_data:
        print_data([each.model_dump(mode="json") for each in found], output)
    else:
        say(*(line for each in found for line in _diff_lines(each)))
    return _exit_code(found, exit_code=exit_code)


def _diff_lines(found: ObjectDiff) -> list[str]:
    """New objects by name only: `tidegate rollout render` prints them."""
    if found.state is DiffState.NOT_OURS:
        return [found.text]
    line = f"{found.kind} {found.name}: {found.state}"
    if found.state is DiffState.REFUSED:
        return [f"{line}; {found.text}"]
    return [line, *(f"  {each}" for each in found.text.splitlines())] if found.state is DiffState.CHANGED else [line]


def _exit_code(found: Sequence[ObjectDiff], *, exit_code: bool) -> int:
    states = {each.state for each in found}
    if DiffState.NOT_OURS in states:
        return ExitCode.USAGE
    if DiffState.REFUSED in states:
        return ExitCode.OUTSIDE
    return ExitCode.ROLLED_BACK if exit_code and states - {DiffState.SAME} else ExitCode.DELIVERED
