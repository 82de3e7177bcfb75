"""`tidegate rollout promote|abort|...`: names, options and help of the commands that act."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.options import As, Output
from tidegate.cli.rollout_options import Context, ExpectHash, ExpectStep, Name, Namespace, OfSpec, Region
from tidegate.cli.rollout_place import Asked

actions = typer.Typer()


@actions.command("promote")
def promote_command(
    name: Name = None,
    full: Annotated[bool, typer.Option("--full", help="Past all steps, pauses and analyses.")] = False,
    skip_step: Annotated[bool, typer.Option("--skip-step", help="Past what runs now, also an analysis.")] = False,
    to_step: Annotated[
        int | None, typer.Option("--to-step", min=0, help="To the step with this index, from 0, up or down.")
    ] = None,
    expect_hash: ExpectHash = None,
    expect_step: ExpectStep = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Let a paused Rollout go on, and return once its controller has reacted.

    Moves users as its next steps say. Refused when it is not paused, since that would skip what runs, and when it
    moved on meanwhile: two who promote at once move it by one pause.

    \b
    Examples:
      tidegate rollout promote support-llm --context eu-west-1
      tidegate rollout promote support-llm --expect-step 3
      tidegate rollout promote support-llm --full
    """
    from tidegate.cli.commands.rollout_act import expected_of, promote

    return promote(
        Asked(name, context, namespace, spec, region),
        full=full,
        skip_step=skip_step,
        to_step=to_step,
        expected=expected_of(expect_hash, expect_step),
        as_json=output is Output.JSON,
    )


@actions.command("abort")
def abort_command(
    name: Name = None,
    expect_hash: ExpectHash = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Bring all users back to the stable version, and return once the controller has done so.

    The spec still names the new version: go on with `retry`, or with `undo`. Refused when nothing is in progress.

    \b
    Examples:
      tidegate rollout abort support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout_act import abort, expected_of

    asked = Asked(name, context, namespace, spec, region)
    return abort(asked, expected=expected_of(expect_hash), as_json=output is Output.JSON)


@actions.command("retry")
def retry_command(
    name: Name = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Start an aborted version again at its first step. Refused when it was not aborted.

    \b
    Examples:
      tidegate rollout retry support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout_act import retry

    return retry(Asked(name, context, namespace, spec, region), as_json=output is Output.JSON)


@actions.command("undo")
def undo_command(
    name: Name = None,
    to_revision: Annotated[
        int,
        typer.Option(
            "--to-revision", min=0, help="0: the stable one while another is on its way, else the one before."
        ),
    ] = 0,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Bring back the pod template of an earlier revision.

    To the stable version it goes at once; to any other by all steps, unless `spec.rollbackWindow` covers it.

    \b
    Examples:
      tidegate rollout undo support-llm --context eu-west-1
      tidegate rollout undo support-llm --to-revision 3
    """
    from tidegate.cli.commands.rollout_act import undo

    return undo(Asked(name, context, namespace, spec, region), revision=to_revision, as_json=output is Output.JSON)


@actions.command("pause")
def pause_command(
    name: Name = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Hold a Rollout where it is; users stay as they are spread now. `promote` or `resume` lets it go on.

    \b
    Examples:
      tidegate rollout pause support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout_act import pause

    return pause(Asked(name, context, namespace, spec, region), as_json=output is Output.JSON)


@actions.command("resume")
def resume_command(
    name: Name = None,
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Let go what `pause` holds, and nothing else: the pause of a step stays.

    \b
    Examples:
      tidegate rollout resume support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout_act import resume

    return resume(Asked(name, context, namespace, spec, region), as_json=output is Output.JSON)


@actions.command("restart")
def restart_command(
    name: Name = None,
    after: Annotated[str, typer.Option("--in", help="When to begin, such as 30s.")] = "0s",
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Replace every pod by a new one of the same version, a few at a time; returns before the last one.

    \b
    Examples:
      tidegate rollout restart support-llm --context eu-west-1
      tidegate rollout restart support-llm --in 30s
    """
    from tidegate.cli.commands.rollout_act import restart

    return restart(Asked(name, context, namespace, spec, region), after=after, as_json=output is Output.JSON)


@actions.command("set-image")
def set_image_command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME] CONTAINER=IMAGE", help="A container's name, or * for all of them.", show_default=False
        ),
    ],
    context: Context = None,
    namespace: Namespace = None,
    spec: OfSpec = None,
    region: Region = None,
    output: As = Output.TEXT,
) -> int:
    """Give a Rollout another image, which starts its steps; nothing when it has that image.

    \b
    Examples:
      tidegate rollout set-image support-llm engine=registry.example.com/support-llm@sha256:... --context eu-west-1
      tidegate rollout set-image 'engine=registry.example.com/support-llm@sha256:...' --spec delivery.yaml
    """
    from tidegate.cli.commands.rollout_act import set_image

    *names, assignment = words
    if len(names) > 1:
        raise typer.BadParameter(f"found {' '.join(words)}; expected [NAME] CONTAINER=IMAGE")
    asked = Asked(names[0] if names else None, context, namespace, spec, region)
    return set_image(asked, assignment=assignment, as_json=output is Output.JSON)
