"""`tidegate report`: deliveries as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gates.adapters.records import RecordReader
from pipelines.event_file import EventFile
from pipelines.ports import Event
from pipelines.report import DeliveryRecord, render_report
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from tidegate.cli.compose import open_deliveries, read_delivery
from tidegate.core.errors import UsageError


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, last: int, target: Path) -> int:
    """Write the page of the last deliveries.

    Raises:
        UsageError: when there was none.
    """
    spec, folder = read_delivery(spec_path), StateFolder(state)
    ledgers = open_deliveries(state, tracking_uri)
    found = ledgers.deliveries(spec.model.name)[:last]
    if not found:
        raise UsageError(f"{spec.model.name} has not been delivered yet", hint="run `tidegate deliver`")
    sources: list[tuple[str, Source]] = []
    for delivery in reversed(found):
        local = EventFile(folder.delivery(delivery.id) / "events.jsonl")
        # The ledger has every event of every machine; the file has more looks at each gate.
        sources.append((delivery.id, local if local.path.exists() else Recorded(ledgers.events(delivery.id))))
    write_report(spec, folder, sources, target)
    print(target)
    return 0


class Recorded:
    """Events that the ledger gave back."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events

    def read(self) -> Iterable[Event]:
        return self._events


Source = EventFile | Recorded


def write_report(spec: Delivery, state: StateFolder, sources: Sequence[tuple[str, Source]], target: Path) -> None:
    """Render the deliveries, in order, with what users saw meanwhile when somebody wrote it down."""
    traffic = state.traffic / f"{spec.metadata.name}.jsonl"
    records = RecordReader(traffic).read_new() if traffic.exists() else []
    deliveries = [DeliveryRecord(id=name, events=tuple(source.read())) for name, source in sources]
    title = f"{spec.metadata.name}: {len(deliveries)} {'delivery' if len(deliveries) == 1 else 'deliveries'}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render_report(deliveries, records=records, title=title), encoding="utf-8")
