"""`tidegate rollout`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollouts.manifests.conventions import GitOpsTool, PackageTool, RenderPart, TrafficRouter
from tidegate.cli.durations import Duration, duration
from tidegate.cli.options import SPEC, STATE, As, AsList, Spec, State, Tracking, spread
from tidegate.cli.output import ListOutput, Output
from tidegate.cli.rollout_options import (
    ClusterOptions,
    Context,
    ExpectHash,
    ExpectStep,
    Namespace,
    RegionOfSpec,
    ReleaseOptions,
    RolloutOptions,
    Stuck,
    Surge,
)

rollout = typer.Typer(name="rollout", help="Rollouts and other Kubernetes objects of a delivery.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show each write; send none.")]


@rollout.command("render")
@spread
def render(
    *,
    release: ReleaseOptions,
    part: Annotated[
        list[RenderPart] | None,
        typer.Option("--part", help="Only this part: an administrator applies setup and admission once; repeatable."),
    ] = None,
    against: Annotated[bool, typer.Option("--against", help="Refuse (exit 2) if it has others' objects.")] = False,
    output: AsList = ListOutput.TEXT,
) -> int:
    """Print all objects that a region needs to serve an engine, as YAML for `kubectl apply`.

    Reads the spec only: asks no registry, a cluster only with --against, and changes nothing.

    \b
    Examples:
      tidegate rollout render --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout render delivery.yaml --region eu-west-1 --part setup
    """
    from tidegate.cli.commands.rollout_objects import render_objects

    parts = [each for each in RenderPart if not part or each in part]
    return render_objects(release, parts, against=against, output=output)


@rollout.command("package")
@spread
def package_command(
    *,
    spec: Spec = SPEC,
    tool: Annotated[PackageTool, typer.Option("--for", help="Who installs it.", show_default=False)],
    folder: Annotated[Path, typer.Option("--to", help="Folder of the package.", show_default=False)],
    admission: Annotated[bool, typer.Option("--admission", help="`admission` instead of `setup`.")] = False,
) -> int:
    """Write what an administrator applies to each region as a Helm chart, or as Kustomize components.

    The objects of `render --part setup` for every region of the spec; a value, or a folder, says which region. Reads
    the spec only, and replaces files of the same names in the folder.

    \b
    Examples:
      tidegate rollout package delivery.yaml --for helm --to charts/support-llm-setup
      tidegate rollout package delivery.yaml --for kustomize --to components/support-llm-setup
    """
    from tidegate.cli.commands.rollout_objects import package_objects

    return package_objects(spec, tool, folder, RenderPart.ADMISSION if admission else RenderPart.SETUP)


@rollout.command("diff")
@spread
def diff(
    *,
    release: ReleaseOptions,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when anything differs.")] = False,
    output: As = Output.TEXT,
) -> int:
    """Show what applying a region's objects would change in its cluster, and what is left over there.

    Sends dry runs to the API server; changes nothing.

    \b
    Examples:
      tidegate rollout diff --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout diff --exit-code --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from tidegate.cli.commands.rollout_objects import diff_objects

    return diff_objects(release, exit_code=exit_code, output=output)


@rollout.command("ignore-differences")
@spread
def ignore_differences_command(
    *,
    spec: Spec = SPEC,
    tool: Annotated[GitOpsTool, typer.Option("--for", help="Who applies what is in Git.")] = GitOpsTool.ARGO_CD,
    output: As = Output.TEXT,
) -> int:
    """Print what keeps Argo CD or Flux from writing back what deliveries write.

    For Argo CD `ignoreDifferences` and `RespectIgnoreDifferences=true`, for the `spec` of its Application; for Flux
    patches that annotate the objects, for the `spec` of its Kustomization. Needed where Git holds objects of the part
    `serving`, or objects that were adopted. Reads the spec only: asks no cluster, and changes nothing.

    \b
    Examples:
      tidegate rollout ignore-differences delivery.yaml
      tidegate rollout ignore-differences delivery.yaml --for flux
    """
    from tidegate.cli.commands.gitops import ignore_differences

    return ignore_differences(spec, tool, output)


@rollout.command("adopt")
@spread
def adopt_command(
    *,
    spec: Spec = SPEC,
    region: RegionOfSpec = None,
    version: Annotated[str | None, typer.Option(help="What its pods serve; default: the champion.")] = None,
    deployment: Annotated[str, typer.Option(metavar="NAME", help="Deployment, if named otherwise.")] = "",
    surge: Surge = None,
    dry_run: DryRun = False,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Take over a Rollout or Deployment of others with its Services and its route, while it serves.

    A Rollout has the delivery's name. Its pods stay, and are the stable version until a delivery replaces them; users
    keep their address. A Deployment gets a Rollout with the same pods, and none of its own once that is taken over.
    Run it again to continue where it was cut off. `tidegate rollout release` gives everything back.

    \b
    Examples:
      tidegate rollout adopt delivery.yaml --region eu-west-1 --dry-run
      tidegate rollout adopt delivery.yaml --region eu-west-1 --version 7
      tidegate rollout adopt delivery.yaml --region eu-west-1 --deployment vllm --surge 1
    """
    from tidegate.app.clusters.adoption import AdoptionRequest
    from tidegate.cli.commands.adoption import adopt

    asked = AdoptionRequest(spec, region, dry_run, deployment, surge)
    return adopt(asked, version=version, state=state, tracking_uri=tracking_uri, output=output)


@rollout.command("release")
@spread
def release_command(
    *,
    spec: Spec = SPEC,
    region: RegionOfSpec = None,
    surge: Surge = None,
    dry_run: DryRun = False,
    output: As = Output.TEXT,
) -> int:
    """Give a Rollout or Deployment back that was adopted, with its Services and its route, while it serves.

    Starts its own pods again where a delivery has replaced them, and moves users once all are ready. Deletes what
    deliveries brought besides, and the Rollout that was made for a Deployment; the set-up part stays. Refused while a
    trial is under way.

    \b
    Examples:
      tidegate rollout release delivery.yaml --region eu-west-1 --dry-run
      tidegate rollout release delivery.yaml --region eu-west-1
    """
    from tidegate.app.clusters.adoption import AdoptionRequest
    from tidegate.cli.commands.adoption import release

    return release(AdoptionRequest(spec, region, dry_run, surge=surge), output=output)


@rollout.command("get")
@spread
def get(*, asked: RolloutOptions, stuck_after: Stuck = Duration(minutes=1), output: As = Output.TEXT) -> int:
    """Show a Rollout with its revisions, ReplicaSets, pods, analysis runs and its health. Changes nothing.

    \b
    Examples:
      tidegate rollout get support-llm --context eu-west-1
      tidegate rollout get --spec delivery.yaml --region eu-west-1 --output json
    """
    from tidegate.cli.commands.rollout import show_rollout as run

    return run(asked, stuck_after, output=output)


@rollout.command("list")
@spread
def listing(*, where: ClusterOptions, output: AsList = ListOutput.TEXT) -> int:
    """List the Rollouts of a namespace with strategy, health, step, weight and pods. Changes nothing.

    \b
    Examples:
      tidegate rollout list --context eu-west-1 --namespace serving
      tidegate rollout list --output json
    """
    from tidegate.cli.commands.rollout import list_rollouts as run

    return run(where.named(None), output=output)


@rollout.command("status")
@spread
def status(
    *,
    asked: RolloutOptions,
    timeout: Annotated[
        Duration, typer.Option("--timeout", parser=duration, help="Time to wait, such as 30m; 0s does not wait.")
    ] = Duration(minutes=30),
    stuck_after: Stuck = Duration(minutes=1),
    output: As = Output.TEXT,
) -> int:
    """Wait until a Rollout is healthy or needs a person; the exit code says which. Changes nothing.

    Exit code: 0 healthy, 1 degraded, 2 paused until somebody promotes it, 3 an analysis could not decide, 4 stuck, or
    not done in time. Waits through a pause that ends by itself.

    \b
    Examples:
      tidegate rollout status support-llm --context eu-west-1 --timeout 45m
      tidegate rollout status --spec delivery.yaml --region eu-west-1 --timeout 0s --output json
    """
    from tidegate.cli.commands.rollout import report_status

    return report_status(asked, timeout, stuck_after, output=output)


@rollout.command("watch")
@spread
def watch(
    *,
    asked: RolloutOptions,
    timeout: Annotated[
        Duration | None, typer.Option("--timeout", parser=duration, help="End after this time, such as 10m.")
    ] = None,
    stuck_after: Stuck = Duration(minutes=1),
    output: As = Output.TEXT,
) -> int:
    """Show a Rollout and all that belongs to it while it changes, until Ctrl-C. Changes nothing.

    Draws a tree on a terminal; elsewhere, and when `CI` is set, prints a line for each change; with -o json a line of
    JSON.

    \b
    Examples:
      tidegate rollout watch support-llm --context eu-west-1
      tidegate rollout watch support-llm --timeout 10m --output json
    """
    from tidegate.cli.commands.rollout import watch_rollout

    return watch_rollout(asked, timeout, stuck_after, output=output)


@rollout.command("promote")
@spread
def promote_command(
    *,
    full: Annotated[bool, typer.Option("--full", help="Skip all steps, pauses and analyses.")] = False,
    skip_step: Annotated[bool, typer.Option("--skip-step", help="Skip what runs now, also an analysis.")] = False,
    to_step: Annotated[
        int | None, typer.Option("--to-step", min=0, help="Go to this step, counted from 0, forward or back.")
    ] = None,
    expect_hash: ExpectHash = None,
    expect_step: ExpectStep = None,
    asked: RolloutOptions,
    output: As = Output.TEXT,
) -> int:
    """Continue a paused Rollout, and return once its controller has reacted.

    Shifts users by its next steps. Refused when it is not paused, since that would skip what runs, and when it has
    moved since: two promotions at once continue one pause.

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
        output=output,
    )


@rollout.command("abort")
@spread
def abort_command(*, expect_hash: ExpectHash = None, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Move all users back to the stable version, and return once the controller has done so.

    The spec still names the new version: `retry` or `undo` comes next. Refused when nothing is in progress.

    \b
    Examples:
      tidegate rollout abort support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import abort, expected_of

    return abort(asked, expected=expected_of(expect_hash), output=output)


@rollout.command("retry")
@spread
def retry_command(*, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Start an aborted version again at its first step. Refused when nothing was aborted.

    \b
    Examples:
      tidegate rollout retry support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import retry

    return retry(asked, output=output)


@rollout.command("undo")
@spread
def undo_command(
    *,
    to_revision: Annotated[
        int,
        typer.Option("--to-revision", min=0, help="Revision; 0: the stable one during an update, else the one before."),
    ] = 0,
    asked: RolloutOptions,
    output: As = Output.TEXT,
) -> int:
    """Restore the pod template of an earlier revision.

    The stable version is restored at once; any other by all steps, unless `spec.rollbackWindow` covers it.

    \b
    Examples:
      tidegate rollout undo support-llm --context eu-west-1
      tidegate rollout undo support-llm --to-revision 3
    """
    from tidegate.cli.commands.rollout import undo

    return undo(asked, revision=to_revision, output=output)


@rollout.command("pause")
@spread
def pause_command(*, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Pause a Rollout; users stay where they are. `promote` or `resume` continues it.

    \b
    Examples:
      tidegate rollout pause support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import pause

    return pause(asked, output=output)


@rollout.command("resume")
@spread
def resume_command(*, asked: RolloutOptions, output: As = Output.TEXT) -> int:
    """Undo `pause`, and nothing else: the pause of a step stays.

    \b
    Examples:
      tidegate rollout resume support-llm --context eu-west-1
    """
    from tidegate.cli.commands.rollout import resume

    return resume(asked, output=output)


@rollout.command("restart")
@spread
def restart_command(
    *,
    after: Annotated[Duration, typer.Option("--in", parser=duration, help="Delay, such as 30s.")] = Duration(),
    asked: RolloutOptions,
    output: As = Output.TEXT,
) -> int:
    """Replace all pods by new ones of the same version, a few at a time. Returns before the last one.

    \b
    Examples:
      tidegate rollout restart support-llm --context eu-west-1
      tidegate rollout restart support-llm --in 30s
    """
    from tidegate.cli.commands.rollout import restart

    return restart(asked, after=after, output=output)


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
    """Set the image of a Rollout, which starts its steps. Idempotent.

    \b
    Examples:
      tidegate rollout set-image support-llm engine=registry.example.com/support-llm@sha256:... --context eu-west-1
      tidegate rollout set-image 'engine=registry.example.com/support-llm@sha256:...' --spec delivery.yaml
    """
    from tidegate.cli.commands.rollout import set_image

    *names, assignment = words
    if len(names) > 1:
        raise typer.BadParameter(f"found {' '.join(words)}; expected [NAME] CONTAINER=IMAGE")
    return set_image(where.named(names[0] if names else None), assignment=assignment, output=output)


@rollout.command("guard")
def guard(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the delivery, which its Rollout has too.", show_default=False)
    ],
    region: Annotated[str, typer.Option("--region", help="Region, for the lines of output.", show_default=False)],
    context: Context = None,
    namespace: Namespace = None,
    traffic: Annotated[
        TrafficRouter, typer.Option("--traffic", help="What splits traffic.")
    ] = TrafficRouter.GATEWAY_API,
    route: Annotated[
        str, typer.Option("--route", help="The value of `fleet.gateway.route`; default: NAME.", show_default=False)
    ] = "",
    start_within: Annotated[
        Duration, typer.Option("--start-within", parser=duration, help="Time that engines may take to start.")
    ] = Duration(minutes=35),
    after_abort: Annotated[
        Duration, typer.Option("--after-abort", parser=duration, help="The value of `fleet.canary.after_abort`.")
    ] = Duration(minutes=5),
    warm: Annotated[int, typer.Option("--warm", min=0, help="The value of `fleet.previous.versions`; 0 for none.")] = 2,
    probes: Annotated[
        int | None, typer.Option("--probes", min=0, max=65535, help="Answer /healthz and /readyz on this port.")
    ] = None,
) -> int:
    """Roll back a trial of this cluster that no process has carried for too long; checks every 10 s.

    Runs in each region's cluster, from the set-up part of `rollout render`, until it is stopped. Needs no spec and no
    MLflow. A trial is rolled back when its Lease was not renewed for `fleet.unattended`, and was seen unchanged for
    30 s; a Rollout without a Lease, or with a version of another writer, is not touched.

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
        route=route,
        start_seconds=start_within.total_seconds(),
        after_abort_seconds=after_abort.total_seconds(),
        warm=warm,
        probes=probes,
    )
    guard_region(asked, say)
    return 0
