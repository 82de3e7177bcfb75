"""`tidegate audit`: whether the records of deliveries are what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from tidegate.cli.options import SPEC, DeliveryId, surroundings
from tidegate.cli.settings import Output, given, prints
from tidegate.core.errors import ExitCode, UsageError

audit = Typer(name="audit", help="Check and export the records of deliveries.")


@audit.command()
@prints(Output.JSON, Output.YAML)
def verify(
    named: Annotated[
        str, Argument(metavar="DELIVERY", help="The delivery's id, or its first 8 characters; with --all: the spec.")
    ] = "",
    every: Annotated[bool, Option("--all", help="All deliveries of the spec's model.")] = False,
    head: Annotated[
        list[str] | None, Option("--head", metavar="HASH", help="Head that was noted before; repeatable.")
    ] = None,
    replay: Annotated[
        bool, Option("--replay", help="Judge the recorded evidence again, and compare every verdict bit for bit.")
    ] = False,
) -> int:
    """Find what was changed in a record since it was written: events, spec, files, plan, evidence, tags.

    Changes nothing. Exits with 5 on a finding. Signatures are required where the trust file names keys under
    `ledger`; without keys, anyone who can write to MLflow can write a new chain.
    Notifications carry heads: the ledger must still contain what it contained then.

    \b
    Examples:
      tidegate audit verify c28ef0c2 --replay
      tidegate audit verify --all delivery.yaml --output json
      tidegate audit verify c28ef0c2 --head 9f86d081884c7d65...
    """
    if not (named or every):
        raise UsageError("which delivery?", hint="name one, or give --all and the spec")
    if head and every:
        raise UsageError("--head is of one delivery", hint="name it")
    from pipelines.authority.audit import audit as run
    from pipelines.spec.delivery import Delivery
    from tidegate.core.spec import load_spec

    spec = Path(named or SPEC) if every else None
    at = surroundings(spec.parent if spec else None)
    deliveries = at.deliveries()
    model = load_spec(spec, Delivery).model.name if spec else ""
    audits = [
        run(each, *deliveries.record(each.id), deliveries, at.registry, heads=head or (), replaying=replay)
        for each in (deliveries.deliveries(model) if spec else [deliveries.summary(deliveries.whole_id(named))])
    ]
    given().show([each.model_dump(mode="json") for each in audits], *(line for each in audits for line in each.lines))
    return ExitCode.NOT_GENUINE if any(each.findings for each in audits) else ExitCode.DELIVERED


@audit.command()
def export(
    delivery: DeliveryId,
    file: Annotated[Path, Argument(help="The file to write.", show_default=False)],
) -> int:
    """Write the chain of events with its signatures, one event a line, for write-once storage.

    Prints the head, which `audit verify --head` takes. Changes nothing in MLflow. Exits with 5 when something in the
    chain is not genuine.

    \b
    Examples:
      tidegate audit export c28ef0c2 kept.jsonl
    """
    from pipelines.authority.audit import export_chain
    from registry.chain import heads_of

    deliveries = surroundings().deliveries()
    whole = deliveries.whole_id(delivery)
    record, found = deliveries.record(whole)
    export_chain(record.entries, file)
    heads = ", ".join(heads_of(record.entries))
    given().note(f"{file}: {len(record.entries)} events of delivery {whole}; head {heads}")
    for finding in found:
        given().note(f"not genuine: {finding}")
    return ExitCode.NOT_GENUINE if found else ExitCode.DELIVERED
