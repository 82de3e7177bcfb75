"""`tidegate audit`: options, help and output."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.output import Output, print_data, say
from tidegate.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pipelines.authority.audit import Audit


audit = typer.Typer(name="audit", help="Check and export the records of deliveries.")


@audit.command()
@prints(Output.JSON, Output.YAML)
def verify(
    delivery: Annotated[
        str | None, typer.Argument(help="The delivery's id, or its first 8 characters.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All deliveries of the spec's model.")] = False,
    spec: Annotated[Path | None, typer.Option("--file", "-f", help="The spec that names the model of --all.")] = None,
    against: Annotated[Path | None, typer.Option("--against", help="A chain that `audit export` wrote before.")] = None,
    head: Annotated[
        list[str] | None, typer.Option("--head", metavar="HASH", help="Head that was noted before; repeatable.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Judge the recorded evidence again, and compare every verdict bit for bit.")
    ] = False,
) -> int:
    """Find what was changed in a record since it was written: events, spec, files, plan, evidence, tags.

    Changes nothing. Exits with 5 on a finding. Signatures are required where the trust file names keys under
    `ledger`; without keys, anyone who can write to MLflow can write a new chain.
    Notifications carry heads: the ledger must still contain what it contained then.

    \b
    Examples:
      tidegate audit verify c28ef0c2fd4347d8a6cec0bb904568a8
      tidegate audit verify c28ef0c2fd4347d8a6cec0bb904568a8 --replay
      tidegate audit verify --all -f delivery.yaml --output json
      tidegate audit verify c28ef0c2fd4347d8a6cec0bb904568a8 --against kept.jsonl
      tidegate audit verify c28ef0c2fd4347d8a6cec0bb904568a8 --head 9f86d081884c7d65...
    """
    if (delivery is None) != every or (every and spec is None):
        raise UsageError("which delivery?", hint="name one, or give --all and --file SPEC")
    if head and every:
        raise UsageError("--head is of one delivery", hint="name it")
    from tidegate.app.audit import NotedChain
    from tidegate.app.audit import verify as run

    known = NotedChain(against, tuple(head or ()))
    audits = run(delivery, spec, known, given().state, given().tracking_uri, replaying=replay)
    if given().output.is_data:
        print_data([each.model_dump(mode="json") for each in audits], given().output)
    else:
        say(*(line for each in audits for line in _lines(each)))
    return ExitCode.NOT_GENUINE if any(each.findings for each in audits) else ExitCode.DELIVERED


def _lines(found: Audit) -> Iterator[str]:
    signed = f"signed by {', '.join(found.keys)}" if found.keys else "signed by nobody"
    verdict = f"{len(found.findings)} findings" if found.findings else "nothing was changed"
    yield f"{found.delivery}: {found.events} events, {signed}: {verdict}"
    yield from (f"  {finding}" for finding in found.findings)
    yield from (f"  same verdicts, judged again: {trial}" for trial in found.judged_again)
    yield from (f"  head {head}" for head in found.heads)


@audit.command()
def export(
    delivery: Annotated[str, typer.Argument(help="The delivery's id, or its first 8 characters.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", help="The file to write.", show_default=False)],
) -> int:
    """Write the chain of events with its signatures, one event a line, for write-once storage.

    Changes nothing in MLflow.

    \b
    Examples:
      tidegate audit export c28ef0c2fd4347d8a6cec0bb904568a8 --to kept.jsonl
    """
    from tidegate.app.audit import export as run

    found = run(delivery, to, given().state, given().tracking_uri)
    return ExitCode.NOT_GENUINE if found else ExitCode.DELIVERED
