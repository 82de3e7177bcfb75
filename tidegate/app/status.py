"""The last delivery, who carries it, and what every region serves; and the deliveries before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path

from pipelines.delivery_lock import holder
from pipelines.events.spool import SUFFIX
from pipelines.events.state import DeliveryState, state_of
from pipelines.ports import Deliveries, Fleet, VersionRegistry
from pipelines.run.regions import foreign_objects_in
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from pipelines.views.status import DeliveryStatus, FleetSnapshot, PastDelivery, StatusReport
from registry.conventions import ENGINE_SERVING
from registry.model import EngineRecord
from rollouts.errors import FleetError
from rollouts.model import CarrierHeartbeat, RegionState
from tidegate.app.process import note
from tidegate.app.wiring.fleets import CarriedFleet, FleetsOpener, require_contexts, standing_fleets
from tidegate.app.wiring.specs import read_delivery
from tidegate.app.wiring.stores import mlflow_addresses, open_deliveries, open_registry
from tidegate.core.errors import TidegateError
from tidegate.core.threads import call_in_thread


def read_status(ledgers: Deliveries, model: str, unwritten: Path) -> DeliveryStatus:
    """What is known of the model's last delivery. A store that is away hides nothing else."""
    try:
        last = next(iter(ledgers.deliveries(model, last=1)), None)
        alive = last is not None and ledgers.is_alive(last)
        story = state_of(ledgers.join(last.id, carries=False).recorded()) if last else DeliveryState()
    except TidegateError as error:
        return DeliveryStatus(unwritten=unwritten_count(unwritten), unreadable=str(error))
    return DeliveryStatus(last, alive, story, unwritten_count(unwritten))


def in_production(registry: VersionRegistry, model: str, alias: str) -> str | None:
    """Under which name regions serve the version of that alias; None when the registry does not say."""
    try:
        version = registry.resolve(model, alias)
        kept = EngineRecord.kept(registry.tags(version).get(ENGINE_SERVING))
    except TidegateError:
        return None
    return kept.name if kept else version.version


def unwritten_count(folder: Path) -> int:
    """How many records of deliveries lie there until MLflow takes them."""
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob(f"*{SUFFIX}"))


Selection = Callable[[Delivery], Collection[str]]
"""Which regions of a spec to look at; none for all."""


def _all_regions(_: Delivery) -> Collection[str]:
    return ()


def status(
    spec_path: Path, state: Path, tracking_uri: str | None = None, select: Selection = _all_regions
) -> StatusReport:
    """What is known here of the model's last delivery, and one look at the selected regions. Changes nothing."""
    spec, folder = read_delivery(spec_path), StateFolder(state)
    wanted = select(spec)
    require_contexts(spec, wanted)
    delivery = read_status(open_deliveries(state, tracking_uri), spec.model.name, folder.unwritten)
    serves = in_production(open_registry(state, tracking_uri), spec.model.name, spec.model.target)
    fleet = asyncio.run(_observe(spec, folder, wanted=wanted))
    return StatusReport(delivery, fleet, holder(folder.lock), mlflow_addresses(state, tracking_uri), serves)


def history(spec_path: Path, state: Path, tracking_uri: str | None, *, last: int) -> list[PastDelivery]:
    """The last deliveries of the spec's model, newest first. Changes nothing."""
    ledgers = open_deliveries(state, tracking_uri)
    found = ledgers.deliveries(read_delivery(spec_path).model.name, last=last)
    return [PastDelivery(each, ledgers.is_alive(each)) for each in found]


async def read_report(spec: Delivery, state: Path, tracking_uri: str | None, open_fleets: FleetsOpener) -> StatusReport:
    """As `status`, in an event loop of the caller's."""
    folder = StateFolder(state)

    def read() -> tuple[DeliveryStatus, str | None]:
        known = read_status(open_deliveries(state, tracking_uri, spec.path.parent), spec.model.name, folder.unwritten)
        return known, in_production(open_registry(state, tracking_uri), spec.model.name, spec.model.target)

    (delivery, serves), fleet = await call_in_thread(read), await _observe(spec, folder, open_fleets)
    return StatusReport(delivery, fleet, holder(folder.lock), mlflow_addresses(state, tracking_uri), serves)


async def _observe(
    spec: Delivery, state: StateFolder, open_fleets: FleetsOpener = standing_fleets, *, wanted: Collection[str] = ()
) -> FleetSnapshot:
    """Every region that can be seen, and why others cannot: one that is away must not hide the rest."""
    async with open_fleets(spec, state, patience=timedelta(0)) as opened:
        fleets = {name: fleet for name, fleet in opened.items() if not wanted or name in wanted}
        found = await asyncio.gather(*(_region_state(fleet) for fleet in fleets.values()))
        # One that was silent just now would be waited for once more.
        seen = [fleet for fleet, each in zip(fleets.values(), found, strict=True) if isinstance(each, RegionState)]
        carried = await asyncio.gather(*map(_carried, seen))
    return FleetSnapshot(
        regions=[state for state in found if isinstance(state, RegionState)],
        silent={region: each for region, each in zip(fleets, found, strict=True) if isinstance(each, str)},
        carried={fleet.region: each for fleet, each in zip(seen, carried, strict=True) if each},
    )


async def _region_state(fleet: Fleet) -> RegionState | str:
    try:
        state = await fleet.observe()
    except FleetError as error:
        return str(error)
    try:
        return state.model_copy(update={"foreign_objects": await foreign_objects_in(fleet)})
    except TidegateError as error:
        note(f"{fleet.region}: whose all the objects there are is not known: {error}")
        return state


async def _carried(fleet: Fleet) -> CarrierHeartbeat | None:
    """Who carries it; a fleet that does not answer, or does not let us ask, says it elsewhere."""
    try:
        return await fleet.carried() if isinstance(fleet, CarriedFleet) else None
    except FleetError:
        return None
