"""`tidegate rollout`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from typing import Annotated

import typer

from rollouts.manifests.render import RenderPart
from rollouts.manifests.traffic_spec import TrafficRouter
from tidegate.cli.durations import Duration, duration
from tidegate.cli.options import As, Output, spread
from tidegate.cli.rollout_options import ClusterOptions, Context, Namespace, ReleaseOptions, RolloutOptions

rollout = typer.Typer(
    name="rollout", help="The fleet on Kubernetes: what its clusters get, and what their Rollouts do."
)

ExpectHash = Annotated[
    str | None, typer.Option("--expect-hash", help="Refuse unless this is the pod template hash of the new version.")
]


ExpectStep = Annotated[
    int | None, typer.Option("--expect-step", min=0, help="Refuse unless it is at the step with this index, from 0.")
]


Stuck = Annotated[
    Duration,
    typer.Option(
        "--stuck-after",
        parser=duration,
        help="How long the controller may owe a reaction, such as 60s, before it is stuck.",
    ),
]


@rollout.command("render")
@spread
def render(
    *,
    release: ReleaseOptions,
    part: Annotated[
        RenderPart | None,
        typer.Option("--part", help="What an administrator applies once, or what each delivery applies."),
    ] = None,
    against: Annotated[
        bool, typer.Option("--against", help="Refuse, with exit 2, where the cluster has objects of others instead.")
    ] = False,
    output: As = Output.TEXT,
) -> int:
    """Print every object that a region needs to serve an engine, as YAML for `kubectl apply`.

    Reads the spec only: asks no registry, no cluster but with --against, and changes nothing.

    \b
    Examples:
      tidegate rollout render --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout render delivery.yaml --part setup --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from tidegate.cli.commands.rollout_objects import render_objects

    parts = tuple(RenderPart) if part is None else (part,)
    return render_objects(release, parts, against=against, as_json=output is Output.JSON)


@rollout.command("diff")
@spread
def diff(
    *,
    release: ReleaseOptions,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when anything differs.")] = False,
    output: As = Output.TEXT,
) -> int:
    """Show what applying a region's objects would change in its cluster, and which of its objects are left over.

    Asks the region's API server for dry runs; changes nothing.

    \b
    Examples:
      tidegate rollout diff --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout diff --exit-code --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from tidegate.cli.commands.rollout_objects import diff_objects

    return diff_objects(release, exit_code=exit_code, as_json=output is Output.JSON)


@rollout.command("get")
@spread
def get(*, asked: RolloutOptions, stuck_after: Stuck = Duration(minutes=1), output: As = Output.TEXT) -> int:
    """Show a Rollout with its revisions, ReplicaSets, pods and analysis runs, and why it is as it is. Changes nothing.

    \b
    Examples:
      tidegate rollout get support-llm --context eu-west-1
      tidegate rollout get --spec delivery.yaml --region eu-west-1 --output json
    """
    from tidegate.cli.commands.rollout import show_rollout as run

    return run(asked, stuck_after, as_json=output is Output.JSON)


@rollout.command("list")
@spread
def listing(*, where: ClusterOptions, output: As = Output.TEXT) -> int:
    """List the Rollouts of a namespace: strategy, health, step, weight and pods of each. Changes nothing.

    \b
    Examples:
      tidegate rollout list --context eu-west-1 --namespace serving
      tidegate rollout list --output json
    """
    from tidegate.cli.commands.rollout import list_rollouts as run

    return run(where.named(None), as_json=output is Output.JSON)


@rollout.command("status")
@spread
def status(
    *,
    asked: RolloutOptions,
    timeout: Annotated[
        Duration, typer.Option("--timeout", parser=duration, help="How long to wait, such as 30m; 0s looks once.")
    ] = Duration(minutes=30),
    stuck_after: Stuck = Duration(minutes=1),
    output: As = Output.TEXT,
) -> int:
    """Wait until a Rollout is healthy or needs somebody, and say which by the exit code. Changes nothing.

    Ends with 0 healthy, 1 degraded, 2 paused until somebody goes on, 3 an analysis could not decide, 4 stuck, or not
    there in time. A pause that ends by itself is waited for.

    \b
    Examples:
      tidegate rollout status support-llm --context eu-west-1 --timeout 45m
      tidegate rollout status --spec delivery.yaml --region eu-west-1 --timeout 0s --output json
    """
    from tidegate.cli.commands.rollout import report_status

    return report_status(asked, timeout, stuck_after, as_json=output is Output.JSON)


@rollout.command("watch")
@spread
def watch(
    *,
    asked: RolloutOptions,
    timeout: Annotated[
        Duration | None, typer.Option("--timeout", parser=duration, help="End after so long, such as 10m.")
    ] = None,
    stuck_after: Stuck = Duration(minutes=1),
    output: As = Output.TEXT,
) -> int:
    """Show a Rollout with all that belongs to it while it changes, until Ctrl-C. Changes nothing.

    A tree on a terminal, and a line for each change elsewhere and when `CI` is set; with --output json one of JSON.

    \b
    Examples:
      tidegate rollout watch support-llm --context eu-west-1
      tidegate rollout watch support-llm --timeout 10m --output json
    """
    from tidegate.cli.commands.rollout import watch_rollout

    return watch_rollout(asked, timeout, stuck_after, as_json=output is Output.JSON)


@rollout.command("promote")
@spread
def promote_command(
    *,
    full: Annotated[bool, typer.Option("--full", help="Past all steps, pauses and analyses.")] = False,
    skip_step: Annotated[bool, typer.Option("--skip-step", help="Past what runs now, also an analysis.")] = False,
    to_step: Annotated[
        int | None, typer.Option("--to-step", min=0, help="To the step with this index, from 0, up or down.")
    ] = None,
    expect_hash: ExpectHash = None,
    expect_step: ExpectStep = None,
    asked: RolloutOptions,
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
    from tidegate.cli.commands.rollout import expected_of, promote

    return promote(
        asked,
        full=full,
        skip_step=skip_step,
        to_step=to_step,
        expected=expected_of(expect_hash, expect_step),
        as_json=output is Output.JSON,
    )


@rollout.command("abort")
@spread
def abort_command(*, expect_hash: ExpectHash = None, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Bring all users back to the stable version, and return once the controller has done so.

    The spec still names the new version: go on with `retry`, or with `undo`. Refused when nothing is in progress.

    \b
    Examples:
      tidegate rollout abort support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import abort, expected_of

    return abort(asked, expected=expected_of(expect_hash), as_json=output is Output.JSON)


@rollout.command("retry")
@spread
def retry_command(*, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Start an aborted version again at its first step. Refused when it was not aborted.

    \b
    Examples:
      tidegate rollout retry support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import retry

    return retry(asked, as_json=output is Output.JSON)


@rollout.command("undo")
@spread
def undo_command(
    *,
    to_revision: Annotated[
        int,
        typer.Option(
            "--to-revision", min=0, help="0: the stable one while another is on its way, else the one before."
        ),
    ] = 0,
    asked: RolloutOptions,
    output: As = Output.TEXT,
) -> int:
    """Bring back the pod template of an earlier revision.

    To the stable version it goes at once; to any other by all steps, unless `spec.rollbackWindow` covers it.

    \b
    Examples:
      tidegate rollout undo support-llm --context eu-west-1
      tidegate rollout undo support-llm --to-revision 3
    """
    from tidegate.cli.commands.rollout import undo

    return undo(asked, revision=to_revision, as_json=output is Output.JSON)


@rollout.command("pause")
@spread
def pause_command(*, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Hold a Rollout where it is; users stay as they are spread now. `promote` or `resume` lets it go on.

    \b
    Examples:
      tidegate rollout pause support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import pause

    return pause(asked, as_json=output is Output.JSON)


@rollout.command("resume")
@spread
def resume_command(*, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Let go what `pause` holds, and nothing else: the pause of a step stays.

    \b
    Examples:
      tidegate rollout resume support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import resume

    return resume(asked, as_json=output is Output.JSON)


@rollout.command("restart")
@spread
def restart_command(
    *,
    after: Annotated[Duration, typer.Option("--in", parser=duration, help="When to begin, such as 30s.")] = Duration(),
    asked: RolloutOptions,
    output: As = Output.TEXT,
) -> int:
    """Replace every pod by a new one of the same version, a few at a time; returns before the last one.

    \b
    Examples:
      tidegate rollout restart support-llm --context eu-west-1
      tidegate rollout restart support-llm --in 30s
    """
    from tidegate.cli.commands.rollout import restart

    return restart(asked, after=after, as_json=output is Output.JSON)


@rollout.command("set-image")
@spread
def set_image_command(
    *,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME] CONTAINER=IMAGE", help="A container's name, or * for all of them.", show_default=False
        ),
    ],
    where: ClusterOptions,
    output: As = Output.TEXT,
) -> int:
    """Give a Rollout another image, which starts its steps; nothing when it has that image.

    \b
    Examples:
      tidegate rollout set-image support-llm engine=registry.example.com/support-llm@sha256:... --context eu-west-1
      tidegate rollout set-image 'engine=registry.example.com/support-llm@sha256:...' --spec delivery.yaml
    """
    from tidegate.cli.commands.rollout import set_image

    *names, assignment = words
    if len(names) > 1:
        raise typer.BadParameter(f"found {' '.join(words)}; expected [NAME] CONTAINER=IMAGE")
    return set_image(where.named(names[0] if names else None), assignment=assignment, as_json=output is Output.JSON)


@rollout.command("guard")
def guard(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The delivery, and its Rollout.", show_default=False)],
    region: Annotated[str, typer.Option("--region", help="How lines name this cluster.", show_default=False)],
    context: Context = None,
    namespace: Namespace = None,
    traffic: Annotated[TrafficRouter, typer.Option("--traffic", help="What splits users.")] = TrafficRouter.GATEWAY_API,
    start_within: Annotated[
        Duration, typer.Option("--start-within", parser=duration, help="How long engines may take to start.")
    ] = Duration(minutes=35),
    after_abort: Annotated[
        Duration, typer.Option("--after-abort", parser=duration, help="As `fleet.canary.after_abort`.")
    ] = Duration(minutes=5),
    warm: Annotated[int, typer.Option("--warm", min=0, help="As `fleet.previous.versions`; 0 for none.")] = 2,
    probes: Annotated[
        int | None, typer.Option("--probes", min=0, max=65535, help="Answer /healthz and /readyz on this port.")
    ] = None,
) -> int:
    """Look every 10 s whether somebody carries the region's trial, and take it back when nobody did for too long.

    Runs in each region's cluster, from the set-up part of `rollout render`, until it is told to end. It needs no spec
    and no MLflow. A trial goes back when its Lease was silent for longer than it allows (`fleet.unattended`), and was
    seen unchanged for 30 s; a Rollout without a Lease, or that somebody else asks for a version, is left alone.

    \b
    Examples:
      tidegate rollout guard support-llm --region eu-west-1
      tidegate rollout guard support-llm --region eu-west-1 --context eu-west-1 --namespace serving --traffic istio
    """
    from tidegate.app.clusters.guard import GuardOptions, guard_region
    from tidegate.cli.output import say

    asked = GuardOptions(
        name=name,
        region=region,
        context=context,
        namespace=namespace,
        traffic=traffic,
        start_seconds=start_within.total_seconds(),
        after_abort_seconds=after_abort.total_seconds(),
        warm=warm,
        probes=probes,
    )
    guard_region(asked, say)
    return 0
