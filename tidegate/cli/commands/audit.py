"""`tidegate audit`: whether what stands in MLflow of a delivery is what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pipelines.audit import Audit, audit
from pipelines.spec import Delivery
from registry.chain import Entry, entry_of, vanished
from tidegate.cli.compose import open_deliveries, open_registry
from tidegate.cli.output import note, print_json
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.spec import load_spec


def verify(
    delivery: str | None,
    spec: Path | None,
    against: Path | None,
    state: Path,
    tracking_uri: str | None,
    *,
    as_json: bool,
) -> int:
    """Audit one delivery, or all of the spec's model; 5 when anything was found."""
    deliveries = open_deliveries(state, tracking_uri, spec.parent if spec else None)
    registry = open_registry(state, tracking_uri)
    if delivery is None:
        assert spec is not None, "the delivery or the spec is named"
        summaries = deliveries.deliveries(load_spec(spec, Delivery).model.name)
    else:
        summaries = [deliveries.summary(delivery)]
    known = list(_exported(against)) if against else []
    audits: list[Audit] = []
    for summary in summaries:
        record, found = deliveries.record(summary.id)
        gone = vanished((entry for entry in known if entry.link.delivery == summary.id), record.entries)
        audits.append(audit(summary, record, [*found, *gone], deliveries, registry))
    if as_json:
        print_json([each.model_dump(mode="json") for each in audits])
    else:
        print(*(line for each in audits for line in _lines(each)), sep="\n")
    return ExitCode.NOT_GENUINE if any(each.findings for each in audits) else ExitCode.DELIVERED


def export(delivery: str, to: Path, state: Path, tracking_uri: str | None) -> int:
    """Write the chain with its signatures, one event a line."""
    record, found = open_deliveries(state, tracking_uri).record(delivery)
    lines = [json.dumps({"body": entry.body, "signature": entry.signature}) + "\n" for entry in record.entries]
    try:
        to.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}") from error
    note(f"{to}: {len(lines)} events of delivery {delivery}")
    for finding in found:
        note(f"not genuine: {finding}")
    return ExitCode.NOT_GENUINE if found else ExitCode.DELIVERED


def _exported(path: Path) -> Iterator[Entry]:
    """The entries of an exported chain.

    Raises:
        UsageError: it is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            said = json.loads(line)
            entry = entry_of(f"{said['body']}\n{said['signature']}")
        except (ValueError, TypeError, KeyError):
            entry = None
        if entry is None:
            hint = "`tidegate audit export` writes them"
            raise UsageError(f"{path}:{number}: no event of an exported chain", hint=hint)
        yield entry


def _lines(found: Audit) -> Iterator[str]:
    signed = f"signed by {', '.join(found.keys)}" if found.keys else "signed by nobody"
    kind = f"chained, {signed}" if found.chained else "not chained"
    verdict = f"{len(found.findings)} findings" if found.findings else "nothing was changed"
    yield f"{found.delivery}: {found.events} events, {kind}: {verdict}"
    yield from (f"  {finding}" for finding in found.findings)
    yield from (f"  head {head}" for head in found.heads)
