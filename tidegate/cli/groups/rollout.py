"""`tidegate rollout`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from typing import Annotated

import typer

from rollouts.manifests.conventions import GitOpsTool, RenderPart, TrafficRouter
from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, Duration, Spec, duration, spread
from tidegate.cli.output import Output
from tidegate.cli.rollout_options import Namespace, RegionOfSpec, ReleaseOptions

rollout = typer.Typer(name="rollout", help="Rollouts and other Kubernetes objects of a delivery.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show each write; send none.")]


@rollout.command("render")
@spread
@prints(Output.JSON, Output.YAML, Output.NAME)
def render(
    *,
    release: ReleaseOptions,
    part: Annotated[
        list[RenderPart] | None,
        typer.Option("--part", help="Only this part: an administrator applies setup and admission once; repeatable."),
    ] = None,
    against: Annotated[bool, typer.Option("--against", help="Refuse (exit 2) if it has others' objects.")] = False,
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
    return render_objects(release, parts, against=against, output=given().output)


@rollout.command("diff")
@spread
@prints(Output.JSON, Output.YAML)
def diff(
    *,
    release: ReleaseOptions,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when anything differs.")] = False,
) -> int:
    """Show what applying a region's objects would change in its cluster, and what is left over there.

    Sends dry runs to the API server; changes nothing.

    \b
    Examples:
      tidegate rollout diff --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout diff --exit-code --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from tidegate.cli.commands.rollout_objects import diff_objects

    return diff_objects(release, exit_code=exit_code, output=given().output)


@rollout.command("ignore-differences")
@prints(Output.JSON, Output.YAML)
def ignore_differences_command(
    *,
    spec: Spec = SPEC,
    tool: Annotated[GitOpsTool, typer.Option("--for", help="Who applies what is in Git.")] = GitOpsTool.ARGO_CD,
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

    return ignore_differences(spec, tool, given().output)


@rollout.command("adopt")
@prints(Output.JSON, Output.YAML)
def adopt_command(
    *,
    spec: Spec = SPEC,
    region: RegionOfSpec = None,
    version: Annotated[str | None, typer.Option(help="What its pods serve; default: the champion.")] = None,
    dry_run: DryRun = False,
) -> int:
    """Take over a Rollout of others with its Services and its route, while it serves.

    It has the delivery's name. Its pods stay, and are the stable version until a delivery replaces them; users keep
    their address. Run it again to continue where it was cut off. `tidegate rollout release` gives everything back.

    \b
    Examples:
      tidegate rollout adopt delivery.yaml --region eu-west-1 --dry-run
      tidegate rollout adopt delivery.yaml --region eu-west-1 --version 7
    """
    from tidegate.app.clusters.adoption import AdoptionRequest
    from tidegate.cli.commands.adoption import adopt

    asked = AdoptionRequest(spec, region, dry_run)
    return adopt(asked, version=version, state=given().state, tracking_uri=given().tracking_uri, output=given().output)


@rollout.command("release")
@prints(Output.JSON, Output.YAML)
def release_command(
    *,
    spec: Spec = SPEC,
    region: RegionOfSpec = None,
    dry_run: DryRun = False,
) -> int:
    """Give a Rollout back that was adopted, with its Services and its route, while it serves.

    Starts its own pods again where a delivery has replaced them, and moves users once all are ready. Deletes what
    deliveries brought besides; the set-up part stays. Refused while a trial is under way.

    \b
    Examples:
      tidegate rollout release delivery.yaml --region eu-west-1 --dry-run
      tidegate rollout release delivery.yaml --region eu-west-1
    """
    from tidegate.app.clusters.adoption import AdoptionRequest
    from tidegate.cli.commands.adoption import release

    return release(AdoptionRequest(spec, region, dry_run), output=given().output)


@rollout.command("guard")
def guard(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the delivery, which its Rollout has too.", show_default=False)
    ],
    region: Annotated[str, typer.Option("--region", help="Region, for the lines of output.", show_default=False)],
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
        context=given().context,
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
