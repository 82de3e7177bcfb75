"""Who writes a region's objects back from elsewhere, as `kubectl apply` and Argo CD's self-heal do.

On what the simulated API server does with patches; what was applied before and is no more is left out. The real kubectl
tells the same story in `tests/cluster/reverted.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fakes.clusters.region import user_shares
from fakes.kube.cluster import FakeCluster
from fakes.kube.store import Event

from rollouts.kube.resources import HTTP_ROUTES, SERVICES, VIRTUAL_SERVICES, resource_of
from tidegate.core.model import Json

KUBECTL, ARGO_CD, HELM = "kubectl-client-side-apply", "argocd-controller", "helm"
"""Field managers, as each names itself."""


def kubectl_apply(cluster: FakeCluster, manifests: Sequence[Json], *, manager: str = KUBECTL) -> list[str]:
    """`kubectl apply -f`, client-side, for the first time: what is wanted is merged in; says what it changed."""
    changed = []
    for wanted in manifests:
        resource, name = resource_of(wanted), wanted["metadata"]["name"]
        if (live := cluster.find(resource, name)) is None:
            cluster.create(resource, wanted, manager=manager)
            changed.append(_name(wanted))
            continue
        after = cluster.patch(resource, name, wanted, manager=manager)
        if after["metadata"].get("generation") != live["metadata"].get("generation"):
            changed.append(_name(wanted))
    return changed


def _name(body: Json) -> str:
    return f"{body['kind']} {body['metadata']['name']}"


class Unserved:
    """Watches a cluster: when users are led to a Service without a ready pod, no matter who brings that about."""

    def __init__(self, cluster: FakeCluster, ready: Callable[[str], int]) -> None:
        """`ready` counts the ready pods behind a Service."""
        self._cluster, self._ready = cluster, ready
        self.seen: list[str] = []
        cluster.on_change(self._look)

    def _look(self, event: Event) -> None:
        for resource in (HTTP_ROUTES, VIRTUAL_SERVICES):
            for route in self._cluster.list(resource):
                for (_, service), share in user_shares(route).items():
                    known = self._cluster.find(SERVICES, service) is not None
                    if share and known and not self._ready(service):
                        self.seen.append(f"{event.manager or event.change}: {share:g} % of users to {service}")
