"""`tidegate init`, `schema`, `completion`, `doctor`, `notify`: what prepares and checks."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.completion import Shell, print_script
from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, Spec, spread
from tidegate.cli.output import Output
from tidegate.cli.rollout_options import Regions, selected_regions
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from pipelines.spec.delivery import Delivery


@dataclass(frozen=True)
class WorkloadOptions:
    """What serves today, and where; nothing for an example."""

    from_rollout: Annotated[
        str | None, typer.Option("--from-rollout", metavar="NAME", help="Draft from this Rollout of a cluster.")
    ] = None
    from_deployment: Annotated[
        str | None, typer.Option("--from-deployment", metavar="NAME", help="Draft from this Deployment of a cluster.")
    ] = None
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context", help="Context of the kubeconfig; repeatable: each is a region; default: the current."
        ),
    ] = None
    namespace: Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace; default: the context's.")] = (
        None
    )
    container: Annotated[
        str | None,
        typer.Option("--container", metavar="NAME", help="Container that serves; default: the one with vLLM."),
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the delivery; default: what requests call the model, if free.")
    ] = None
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="File to write; default: delivery.yaml in the folder.")
    ] = None
    adopt: Annotated[
        bool, typer.Option("--adopt", help="For `tidegate rollout adopt`: with the Rollout's own name and route.")
    ] = False

    @property
    def is_asked(self) -> bool:
        """Whether clusters are to be read.

        Raises:
            UsageError: both kinds, or an option that means nothing with the kind that is given, or without one.
        """
        if self.from_rollout and self.from_deployment:
            raise UsageError("--from-rollout and --from-deployment are two sources", hint="give one of them")
        if self.from_deployment and self.adopt:
            raise UsageError("--adopt: only with --from-rollout", hint="leave one of them out")
        if self.from_rollout or self.from_deployment:
            return True
        alone = next((name for name, value in vars(self).items() if value), None)
        if alone:
            raise UsageError(
                f"--{alone}: only with --from-rollout or --from-deployment", hint="give one of them, or leave it out"
            )
        return False


@spread
@prints(Output.JSON, Output.YAML)
def init(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
    workload: WorkloadOptions,
) -> int:
    """Write a delivery.yaml: an example, or a draft from a cluster.

    Overwrites nothing. The example comes with a golden set and prompts. From a Rollout or Deployment of yours, a draft
    says where each value is from, and which are yours to decide; its routes, autoscaler and monitors are read too.
    Nothing is changed in a cluster, and no Secret or variable's value is read. Exits with 2 when the file is there
    already or the workload is not, with 4 when a cluster cannot be read.

    \b
    Examples:
      tidegate init support
      tidegate init --from-rollout support-llm --context prod-eu-west-1 -n serving
      tidegate init --from-rollout support-llm --context prod-eu-west-1 -n serving --adopt
      tidegate init --from-deployment vllm --context eu --context us --to delivery.yaml -o json
    """
    if not workload.is_asked:
        if given().output is not Output.TEXT:
            raise UsageError(
                "--given().output: only with --from-rollout or --from-deployment",
                hint="give one of them, or leave it out",
            )
        from tidegate.cli.commands.init import write_example

        return write_example(folder)
    from rollouts.survey import WorkloadKind
    from tidegate.app.clusters.draft import DraftRequest
    from tidegate.cli.commands.init import write_draft

    asked = DraftRequest(
        kind=WorkloadKind.ROLLOUT if workload.from_rollout else WorkloadKind.DEPLOYMENT,
        workload=workload.from_rollout or workload.from_deployment or "",
        contexts=tuple(workload.context or filter(None, [given().context])),
        namespace=workload.namespace,
        name=workload.name or "",
        container=workload.container or "",
        to=workload.to or folder / "delivery.yaml",
        adopting=workload.adopt,
    )
    return write_draft(asked, output=given().output)


def schema(kind: Annotated[str, typer.Argument(help="delivery, trust, gates or batch.")] = "delivery") -> int:
    """Print a JSON schema, for editors and checks: of a spec, or of a line of evidence.

    \b
    Examples:
      tidegate schema delivery > delivery.schema.json
      tidegate schema batch
    """
    from tidegate.cli.commands.init import print_schema

    return print_schema(kind)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)]) -> int:
    """Print the completion script of a shell.

    \b
    Examples:
      tidegate completion bash > ~/.local/share/bash-completion/completions/tidegate
      tidegate completion zsh > "${fpath[1]}/_tidegate"
      tidegate completion fish > ~/.config/fish/completions/tidegate.fish
    """
    return print_script(shell)


@prints(Output.JSON, Output.YAML)
def doctor(
    *,
    spec: Spec = SPEC,
    region: Regions = None,
    controller_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace of the Argo Rollouts controller.")
    ] = "argo-rollouts",
) -> int:
    """Find what would break a delivery in the clusters, and the fix. Changes nothing.

    Exits with 1 on an error or a warning, with 4 when a region cannot be reached.

    \b
    Examples:
      tidegate doctor delivery.yaml
      tidegate doctor --region eu-west-1 --output json
    """
    from tidegate.cli.commands.doctor import show_findings

    def wanted(read: Delivery) -> tuple[str, ...]:
        return selected_regions(read, region or (), given().context)

    return show_findings(spec, wanted, controller_namespace, output=given().output)


@prints(Output.JSON, Output.YAML)
def notify(
    spec: Spec = SPEC,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every message instead; send nothing.")] = False,
) -> int:
    """Send a test message to everyone under `notify` in a spec, or show what a delivery would send.

    Changes nothing else. Addresses come from the environment only, and are never printed. Exits with 4 when a
    message was not accepted, with 2 when a variable is not set.

    \b
    Examples:
      tidegate notify delivery.yaml --dry-run
      tidegate notify delivery.yaml
    """
    from tidegate.cli.commands.notify import try_notifications

    return try_notifications(spec, dry_run=dry_run, output=given().output)
