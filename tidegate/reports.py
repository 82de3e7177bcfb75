"""Deliveries as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gates.evidence.request_record import RecordReader
from pipelines.events.listeners import EventFile
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from pipelines.views.report import DeliveryRecord, render_report
from registry.deliveries import MlflowDeliveries
from registry.errors import UnknownDelivery
from registry.ledger import MlflowLedger
from registry.model import Event
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.files import write_atomically
from tidegate.core.process import note
from tidegate.surroundings import Surroundings


def report(at: Surroundings, spec: Delivery, *, last: int, target: Path) -> None:
    """Write the page of the last deliveries.

    Raises:
        UsageError: when there was none.
    """
    ledgers = at.deliveries()
    found = ledgers.deliveries(spec.model.name, last=last)
    if not found:
        raise UsageError(f"{spec.model.name} has not been delivered yet", hint="run `tidegate deliver`")
    told = {delivery.id: events_of(delivery.id, at.state, ledgers) for delivery in reversed(found)}
    write_report(spec, at.state, told, target)


def events_of(delivery: str, state: StateFolder, ledgers: MlflowDeliveries) -> Sequence[Event]:
    """What is known of a delivery: the ledger has every event of every machine, the file more looks at each gate."""
    local = EventFile(state.delivery(delivery) / "events.jsonl")
    return tuple(local.read()) if local.path.exists() else ledgers.events(delivery)


def report_of(delivery: str, spec: Delivery, state: StateFolder, ledgers: MlflowDeliveries, *, back: str) -> str:
    """The report of one delivery of the spec's model, with a link to `back`.

    Raises:
        UnknownDelivery: the model has none with that id.
    """
    if ledgers.summary(delivery).name != spec.model.name:
        raise UnknownDelivery(
            f"there is no delivery {delivery} of {spec.model.name}", hint="`tidegate status --last 20` lists them"
        )
    return _rendered(spec, state, {delivery: events_of(delivery, state, ledgers)}, back=back)


def write_report(spec: Delivery, state: StateFolder, told: Mapping[str, Sequence[Event]], target: Path) -> None:
    """Render the deliveries, in order, with what users saw meanwhile when somebody wrote it down.

    Raises:
        UsageError: when `target` cannot be written.
    """
    html = _rendered(spec, state, told)
    write_atomically({target: html})


def leave_report(spec: Delivery, state: StateFolder, ledger: MlflowLedger, events: EventFile | None) -> Path | None:
    """Write the report of a delivery that is over, and return its path; a missing report changes nothing.

    Args:
        spec: the delivery's.
        state: where the page is written.
        ledger: has every event of every process.
        events: of the only process there was, which has more looks at each gate; None where there were others.
    """
    target = report_path(state, ledger.delivery)
    try:
        write_report(spec, state, {ledger.delivery: tuple(events.read()) if events else ledger.recorded()}, target)
    except TidegateError as error:
        note(f"there is no report: {error}")
        return None
    return target


def report_path(state: StateFolder, delivery: str) -> Path:
    """Where a delivery's report is written."""
    return state.delivery(delivery) / "report.html"


def _rendered(spec: Delivery, state: StateFolder, told: Mapping[str, Sequence[Event]], *, back: str = "") -> str:
    traffic = state.traffic / f"{spec.metadata.name}.jsonl"
    records = RecordReader(traffic).read_new() if traffic.exists() else []
    deliveries = [DeliveryRecord(id=name, events=tuple(events)) for name, events in told.items()]
    title = f"{spec.metadata.name}: {len(deliveries)} {'delivery' if len(deliveries) == 1 else 'deliveries'}"
    return render_report(deliveries, records=records, title=title, back=back)
