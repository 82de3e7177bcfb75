"""An engine that served before, to be started again: by the region's own history, or as the registry knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.ports import Fleet
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from rollouts.model import Engine
from tidegate.cli.output import note

if TYPE_CHECKING:
    from tidegate.cli.records import Records


async def engine_before(fleet: Fleet, version: str, spec: Delivery, state: StateFolder, records: Records) -> Engine:
    """In a cluster nothing is downloaded: pods pull the image that they had then. This machine needs the files.

    Raises:
        TidegateError: neither the region's history nor MLflow knows it.
    """
    from rollouts.cluster.fleet import ArgoFleet

    if isinstance(fleet, ArgoFleet):
        return await fleet.engine_of(version) or await records.engine(version, spec.metadata.name)
    from tidegate.cli.compose import local_engines, open_registry

    registry = open_registry(records.state, records.tracking_uri)
    return await local_engines(spec, state, registry).prepare(registry.resolve(spec.model.name, version), note)
