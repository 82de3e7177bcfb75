"""Where deliveries are carried: this machine's state, MLflow, and whom the operator trusts.

Loads little: a rollback is in a hurry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.adapters.fleets import running_host
from pipelines.adapters.stores import open_deliveries, open_registry
from pipelines.adapters.trust import named_trust, trusted_images
from pipelines.ports import Fleet
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from pipelines.state import StateFolder
from rollouts.manifests.spec import ClusterFleetSpec

if TYPE_CHECKING:
    from pipelines.authority.engine_images import TrustedImages
    from pipelines.authority.identities import ProvenIdentities
    from pipelines.run.context import Backends
    from registry.deliveries import MlflowDeliveries
    from registry.versions import MlflowRegistry
    from rollouts.cluster.carrier import Carrier

RETREAT = timedelta(seconds=30)
"""Patience with a region that does not answer, while users go back: a person waits, and may run it again."""


@dataclass(frozen=True)
class Surroundings:
    """Where a delivery is carried: this machine's state, MLflow, and whom the operator trusts."""

    root: Path
    """The folder with what is this machine's own."""
    tracking_uri: str | None
    """Of MLflow; None for the store in that folder."""
    spec_folder: Path | None = None
    """Where the caller's spec lies: a trust file next to it has to be named."""
    own: Backends | None = None
    """What a program brings; None for what the spec says."""

    @property
    def state(self) -> StateFolder:
        """The folder, by its parts."""
        return StateFolder(self.root)

    @cached_property
    def trusted(self) -> Trusted:
        """Whom the operator trusts. Not read before it is needed: users go back without it.

        Raises:
            UsageError: the trust file cannot be read, or nobody named the one next to the spec.
        """
        return named_trust(self.spec_folder)

    @cached_property
    def registry(self) -> MlflowRegistry:
        """Model versions. Nobody is asked yet."""
        return open_registry(self.root, self.tracking_uri)

    def deliveries(self, *, leftovers: bool = True) -> MlflowDeliveries:
        """The ledgers; what a process before this one could not write is written first, unless that is to wait."""
        return open_deliveries(self.root, self.tracking_uri, self.trusted, leftovers=leftovers)

    @cached_property
    def images(self) -> TrustedImages | None:
        """What engine images have to be; None where nothing is asked of them."""
        return trusted_images(self.trusted)

    @cached_property
    def identities(self) -> ProvenIdentities:
        """Who can prove who they are."""
        # Not above: it loads what checks tokens, which few commands need.
        from pipelines.authority.identities import ProvenIdentities

        return ProvenIdentities(self.trusted.trust.approvers, self.trusted.folder)

    @asynccontextmanager
    async def fleets(
        self, spec: Delivery, *, patience: timedelta | None = None, carrier: Carrier | None = None
    ) -> AsyncIterator[Mapping[str, Fleet]]:
        """Those that are there already, by region; none when nothing runs on this machine.

        Without a `carrier` those in clusters can only be looked at.
        """
        if self.own is not None:
            yield self.own.fleets
        elif isinstance(spec.fleet, ClusterFleetSpec):
            from pipelines.adapters.clusters import open_clusters

            async with open_clusters(
                spec, spec.fleet, patience=patience, counted=False, carrier=carrier, glance=carrier is None
            ) as fleets:
                yield fleets
        elif (host := await running_host(self.root)) is None:
            yield {}
        else:
            try:
                yield {region: host.fleet(region) for region in host.regions()}
            finally:
                await host.close()
