"""Whether MLflow still has what was written of a delivery."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.stores import open_deliveries, open_registry
from pipelines.adapters.trust import named_trust
from pipelines.authority.audit import Audit, audit
from pipelines.spec.delivery import Delivery
from registry.chain import ChainEntry, ChainFinding, beheaded, entry_of, vanished
from tidegate.core.errors import UsageError
from tidegate.core.files import write_atomically
from tidegate.core.process import note
from tidegate.core.spec import load_spec
from tidegate.core.text import json_of, lines_of

_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class NotedChain:
    """What was noted of a chain where MLflow's writers cannot write."""

    against: Path | None = None
    """An export of it."""
    heads: tuple[str, ...] = ()
    """Hashes of events, whole."""

    def missed(self, delivery: str, entries: Sequence[ChainEntry]) -> Iterator[ChainFinding]:
        """What was there then and is not now.

        Raises:
            UsageError: what was noted cannot be read.
        """
        if self.against:
            yield from vanished(
                (each for each in _exported_entries(self.against) if each.link.delivery == delivery), entries
            )
        for head in self.heads:
            if not _HASH.fullmatch(head):
                raise UsageError(f"--head {head}: expected 64 hexadecimal digits")
        yield from beheaded(self.heads, entries)


def verify(
    delivery: str | None,
    spec: Path | None,
    noted: NotedChain,
    state: Path,
    tracking_uri: str | None,
    *,
    replaying: bool,
) -> list[Audit]:
    """Audit one delivery, or all of the spec's model; with `replaying`, judge their evidence again."""
    deliveries = open_deliveries(state, tracking_uri, named_trust(spec.parent if spec else None))
    registry = open_registry(state, tracking_uri)
    if delivery is None:
        assert spec is not None, "the delivery or the spec is named"
        summaries = deliveries.deliveries(load_spec(spec, Delivery).model.name)
    else:
        summaries = [deliveries.summary(deliveries.whole_id(delivery))]
    audits: list[Audit] = []
    for summary in summaries:
        record, found = deliveries.record(summary.id)
        gone = noted.missed(summary.id, record.entries)
        audits.append(audit(summary, record, [*found, *gone], deliveries, registry, replaying=replaying))
    return audits


def export(delivery: str, to: Path, state: Path, tracking_uri: str | None) -> Sequence[ChainFinding]:
    """Write the chain with its signatures, one event a line; returns what in it is not genuine."""
    deliveries = open_deliveries(state, tracking_uri)
    delivery = deliveries.whole_id(delivery)
    record, found = deliveries.record(delivery)
    lines = [json.dumps({"body": entry.body, "signature": entry.signature}) + "\n" for entry in record.entries]
    write_atomically({to: "".join(lines)})
    note(f"{to}: {len(lines)} events of delivery {delivery}")
    for finding in found:
        note(f"not genuine: {finding}")
    return found


def _exported_entries(path: Path) -> Iterator[ChainEntry]:
    """The entries of an exported chain.

    Raises:
        UsageError: it is none.
    """
    try:
        lines = lines_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint="name a file that `tidegate audit export` wrote"
        ) from error
    for number, line in enumerate(lines, 1):
        try:
            said = json_of(line)
            entry = entry_of(f"{said['body']}\n{said['signature']}")
        except (ValueError, TypeError, KeyError):
            entry = None
        if entry is None:
            hint = "`tidegate audit export` writes them"
            raise UsageError(f"{path}:{number}: no event of an exported chain", hint=hint)
        yield entry
