"""What speaks to fleets that run already, and to their clusters. Loads little: a rollback is in a hurry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.spec.delivery import Delivery
from rollouts.errors import KubeconfigWrong
from rollouts.manifests.spec import ClusterFleetSpec
from tidegate.core.clock import SystemClock

if TYPE_CHECKING:
    from rollouts.adapters.host_client import FleetHost
    from rollouts.kube.client import KubeClient


def require_contexts(spec: Delivery, regions: Collection[str] = (), *, every: bool = False) -> None:
    """Look for the contexts of the regions in the kubeconfig before anybody is asked; nothing of a fleet here.

    Of the `regions`, or all; with `every` each must be there, else one is enough, and the others are reported as out of
    reach.

    Raises:
        KubeconfigWrong: one that must be there is not.
    """
    fleet = spec.fleet
    if not isinstance(fleet, ClusterFleetSpec):
        return
    from rollouts.kube.kubeconfig import require_context

    wrong: dict[str, KubeconfigWrong] = {}
    wanted = regions or spec.regions.names
    for region in wanted:
        try:
            require_context(fleet.regions[region].context or None)
        except KubeconfigWrong as error:
            wrong[region] = error
    if wrong and (every or len(wrong) == len(wanted)):
        region, first = next(iter(wrong.items()))
        # Of a file that is wrong as a whole, no region is to be named.
        same = len(wanted) > 1 and len({str(each) for each in wrong.values()}) == 1 and len(wrong) == len(wanted)
        raise first if same else KubeconfigWrong(f"{region}: {first.message}", hint=first.hint)


async def running_host(state: Path) -> FleetHost | None:
    """The host of the fleet on this machine, if it is up."""
    from rollouts.adapters.host_client import attach

    return await attach(state)


async def stop_host(state: Path) -> bool:
    """Drain and stop the fleet on this machine; false when none ran, which is no error."""
    host = await running_host(state)
    if host is not None:
        await host.stop()
    return host is not None


@asynccontextmanager
async def cluster_client(
    context: str | None, namespace: str | None, *, retry_seconds: float = 20.0
) -> AsyncIterator[KubeClient]:
    """A client of one namespace of a cluster, closed at the end; nobody is asked yet.

    Args:
        context: None, or empty, for the kubeconfig's current one, or the cluster that we run in.
        namespace: None for the context's.
        retry_seconds: how long a request is sent again when the server is busy or away; 0 for a single attempt.

    Raises:
        NoAccess: the kubeconfig has no such context, or cannot be read.
    """
    from rollouts.kube.client import connect

    client = connect(context or None, clock=SystemClock(), namespace=namespace, retry_seconds=retry_seconds)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def probed(port: int | None, problem: Callable[[], str]) -> AsyncIterator[None]:
    """Answer the kubelet's probes at `port` within the context, by what is the `problem` then; None answers none."""
    if port is None:
        yield
        return
    from rollouts.adapters.probes import answering

    async with answering(port, problem):
        yield
