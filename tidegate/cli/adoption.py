"""`tidegate rollout adopt` and `release`, hidden: a Rollout of others is taken over, and given back."""

# click wants the backspace that keeps examples unwrapped.
# ruff: noqa: D301

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, RegionOfSpec, Spec
from tidegate.cli.output import Output, print_data, say
from tidegate.core.errors import ExitCode

if TYPE_CHECKING:
    from rollouts.adoption.model import Write
    from rollouts.adoption.writers import ReturningWriter

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show each write; send none.")]


@prints(Output.JSON, Output.YAML)
def adopt(
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
    from pipelines import adoption
    from pipelines.adapters.specs import on_clusters, read_spec, region_of
    from pipelines.adapters.stores import open_registry

    read, registry = read_spec(spec), open_registry(given().state, given().tracking_uri)
    name, tell = region_of(on_clusters(read), region), _tell(dry_run=dry_run)
    writes, writers = adoption.adopt(read, name, registry, version, tell, dry_run=dry_run)
    done = "is adopted" if writes else "was adopted before; nothing was written"
    would = "would be adopted by these writes; nothing was written"
    _print(name, read.metadata.name, writes, would if dry_run else done, writers, dry_run=dry_run)
    if not (dry_run or given().output.is_data):
        say("next: deliver the next version: `tidegate deliver`; give it back: `tidegate rollout release`")
    return ExitCode.DELIVERED


@prints(Output.JSON, Output.YAML)
def release(spec: Spec = SPEC, region: RegionOfSpec = None, dry_run: DryRun = False) -> int:
    """Give a Rollout back that was adopted, with its Services and its route, while it serves.

    Starts its own pods again where a delivery has replaced them, and moves users once all are ready. Deletes what
    deliveries brought besides; the set-up part stays. Refused while a trial is under way.

    \b
    Examples:
      tidegate rollout release delivery.yaml --region eu-west-1 --dry-run
      tidegate rollout release delivery.yaml --region eu-west-1
    """
    from pipelines import adoption
    from pipelines.adapters.specs import on_clusters, read_spec, region_of

    read = read_spec(spec)
    name = region_of(on_clusters(read), region)
    writes = adoption.release(read, name, _tell(dry_run=dry_run), dry_run=dry_run)
    done = "would be given back by these writes; nothing was written" if dry_run else "is given back"
    _print(name, read.metadata.name, writes, done, dry_run=dry_run)
    return ExitCode.DELIVERED


def _tell(*, dry_run: bool) -> Callable[[Write], None]:
    """Print each write before it is sent, but among data; a dry run prints them at its end."""
    quiet = dry_run or given().output.is_data
    return lambda write: None if quiet else say(f"{write.subject}: {write.what}")


def _print(
    region: str,
    delivery: str,
    writes: Sequence[Write],
    done: str,
    writers: Sequence[ReturningWriter] = (),
    *,
    dry_run: bool,
) -> None:
    if given().output.is_data:
        listed = [{"object": each.subject, "verb": each.verb, "what": each.what} for each in writes]
        told = [each.model_dump(mode="json") for each in writers]
        print_data({"region": region, "delivery": delivery, "writes": listed, "writers": told}, given().output)
        return
    say(*(f"{each.subject}: {each.what}" for each in (writes if dry_run else ())), f"{region}: {delivery} {done}")
    for each in writers:
        say(f"{each.tool} ({each.name}) has {', '.join(each.objects)}: {each.advice}")
        say(*(f"  {line}" for line in each.paste.splitlines()))
