"""What the doctor needs from the world: a cluster to read, and a Prometheus to ask."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from rollouts.kube.ports import ClusterReader


class RegionReader(ClusterReader, Protocol):
    """A region's cluster that tells what its clock says, as `KubeClient` does."""

    namespace: str
    """Where the delivery's objects are."""

    @property
    def ahead(self) -> timedelta | None:
        """How far the API server's clock was ahead of ours at its last answer; None when it did not say."""
        ...


class PrometheusReader(Protocol):
    """The region's own."""

    async def ask(self, query: str) -> tuple[float, ...]:
        """The samples of an instant query now; none when no series answers it.

        Raises:
            QueryRefused: when Prometheus cannot evaluate it.
            Unreachable: when it does not answer.
        """
        ...
