"""What deliveries have left: the last one, who carries it, what every region serves, and their pages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from gates.evidence.request_record import RecordReader
from pipelines.adapters.fleets import require_contexts
from pipelines.adapters.stores import mlflow_address
from pipelines.events.listeners import EventFile
from pipelines.events.state import DeliveryState, state_of
from pipelines.events.writer import SUFFIX
from pipelines.ports import CarriedFleet, Fleet
from pipelines.run.regions import foreign_objects_in
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from pipelines.views.report import DeliveryRecord, render_report
from pipelines.views.status import StatusReport
from registry.deliveries import MlflowDeliveries
from registry.ledger import MlflowLedger
from registry.model import DeliverySummary, Event, Serving
from rollouts.errors import FleetError
from rollouts.local.locks import holder
from rollouts.model import CarrierHeartbeat, RegionState
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.files import write_atomically
from tidegate.core.process import note
from tidegate.core.text import redacted
from tidegate.core.threads import call_in_thread
from tidegate.surroundings import Surroundings


def read_records(ledgers: MlflowDeliveries, model: str, unwritten: Path) -> StatusReport:
    """What is known of the model's last delivery. A store that is away hides nothing else."""
    # Records that lie there until MLflow takes them.
    left = sum(len(path.read_bytes().splitlines()) for path in unwritten.glob(f"*{SUFFIX}"))
    try:
        last = next(iter(ledgers.deliveries(model, last=1)), None)
        alive = last is not None and ledgers.is_alive(last)
        story = state_of(ledgers.join(last.id, carries=False).recorded()) if last else DeliveryState()
    except TidegateError as error:
        return StatusReport(unwritten=left, unreadable=str(error))
    return StatusReport(last=last, alive=alive, story=story, unwritten=left)


async def status(at: Surroundings, spec: Delivery, wanted: Collection[str] = ()) -> StatusReport:
    """The model's last delivery, and one look at these regions, at all when empty. Changes nothing.

    Every region that can be seen, and why others cannot: one that is away must not hide the rest.
    """

    def read() -> StatusReport:
        known = read_records(at.deliveries(), spec.model.name, at.state.unwritten)
        try:
            version = at.registry.look_up(spec.model.name, spec.model.target)
            kept = Serving.of(at.registry.tags(version)).now
        except TidegateError:
            return known
        return known.model_copy(update={"in_production": kept.name if kept else version.version})

    if at.own is None:
        require_contexts(spec, wanted)
    known = await call_in_thread(read)
    async with at.fleets(spec, patience=timedelta(0)) as opened:
        fleets = {name: fleet for name, fleet in opened.items() if not wanted or name in wanted}
        looks = dict(zip(fleets, await asyncio.gather(*map(_look, fleets.values())), strict=True))
    here = {
        "regions": tuple(state for state, _ in looks.values() if isinstance(state, RegionState)),
        "silent": {region: state for region, (state, _) in looks.items() if isinstance(state, str)},
        "carried": {region: heartbeat for region, (_, heartbeat) in looks.items() if heartbeat},
        "process": holder(at.state.lock),
        "mlflow": redacted(mlflow_address(at.root, at.tracking_uri)),
    }
    return known.model_copy(update=here)


def history(at: Surroundings, spec: Delivery, *, last: int) -> list[tuple[DeliverySummary, bool]]:
    """The last deliveries of the spec's model, newest first, each with whether it lives. Changes nothing."""
    ledgers = at.deliveries()
    return [(each, ledgers.is_alive(each)) for each in ledgers.deliveries(spec.model.name, last=last)]


async def _look(fleet: Fleet) -> tuple[RegionState | str, CarrierHeartbeat | None]:
    """What a region serves, or why that cannot be seen, and who carries it, where the fleet lets us ask."""
    heartbeat = None
    try:
        state = await fleet.observe()
    except FleetError as error:
        return str(error), None
    with suppress(FleetError):
        heartbeat = await fleet.carried() if isinstance(fleet, CarriedFleet) else None
    try:
        return state.model_copy(update={"foreign_objects": await foreign_objects_in(fleet)}), heartbeat
    except TidegateError as error:
        note(f"{fleet.region}: whose all the objects there are is not known: {error}")
        return state, heartbeat


def report(at: Surroundings, spec: Delivery, *, last: int, target: Path) -> None:
    """Write the page of the last deliveries.

    Raises:
        UsageError: there was none, or `target` cannot be written.
    """
    ledgers = at.deliveries()
    found = ledgers.deliveries(spec.model.name, last=last)
    if not found:
        raise UsageError(f"{spec.model.name} has not been delivered yet", hint="run `tidegate deliver`")
    told: dict[str, Sequence[Event]] = {}
    for each in reversed(found):
        # The ledger has every event of every machine, the file more looks at each gate.
        local = EventFile(at.state.delivery(each.id) / "events.jsonl")
        told[each.id] = tuple(local.read()) if local.path.exists() else ledgers.events(each.id)
    write_atomically({target: page_of(spec, at.state, told)})


def leave_report(spec: Delivery, state: StateFolder, ledger: MlflowLedger, events: EventFile | None) -> Path | None:
    """Write the page of a delivery that is over, and return its path; a missing page changes nothing.

    `events` are those of the only process there was, which has more looks at each gate than the ledger.
    """
    target = report_path(state, ledger.delivery)
    try:
        told = {ledger.delivery: tuple(events.read()) if events else ledger.recorded()}
        write_atomically({target: page_of(spec, state, told)})
    except TidegateError as error:
        note(f"there is no report: {error}")
        return None
    return target


def report_path(state: StateFolder, delivery: str) -> Path:
    """Where a delivery's page is written."""
    return state.delivery(delivery) / "report.html"


def page_of(spec: Delivery, state: StateFolder, told: Mapping[str, Sequence[Event]]) -> str:
    """Deliveries as one self-contained page, in order, with what users saw when somebody wrote it down."""
    traffic = state.traffic / f"{spec.metadata.name}.jsonl"
    records = RecordReader(traffic).read_new() if traffic.exists() else []
    deliveries = [DeliveryRecord(id=name, events=tuple(events)) for name, events in told.items()]
    title = f"{spec.metadata.name}: {len(deliveries)} {'delivery' if len(deliveries) == 1 else 'deliveries'}"
    return render_report(deliveries, records=records, title=title)
