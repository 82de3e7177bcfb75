"""Argo CD in every region: an Application that applies what a branch says, and says of itself what Argo CD would.

Simulated: `fakes.clusters.reverting.ArgoCd` compares and syncs as its documentation and source have it. Git is real.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import yaml
from fakes.clusters.reverting import ArgoCd
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeServers
from fakes.services.git_repository import TeamRepository

from rollouts.kube.resources import APPLICATIONS
from rollouts.manifests.gitops import argo_cd_settings, delivered_objects
from tidegate.core.model import Json

NAMESPACE = "argocd"


def path(region: str) -> str:
    return f"clusters/{region}/serving.yaml"


class Application:
    """One region's; `sync` is what a webhook or a poll brings about."""

    def __init__(self, cluster: FakeCluster, region: str, repository: TeamRepository) -> None:
        self._cluster, self._region, self._repository = cluster, region, repository
        self.writes: list[str] = []
        cluster.create_namespace(NAMESPACE)
        metadata = {"name": f"llm-{region}", "namespace": NAMESPACE}
        cluster.create(
            APPLICATIONS, {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata}
        )

    def sync(self, revision: str, manifests: Sequence[Json]) -> None:
        argo = ArgoCd(self._cluster, manifests, argo_cd_settings(delivered_objects(manifests)))
        self.writes += argo.self_heal()
        status = {"sync": {"revision": revision, "status": "OutOfSync" if argo.out_of_sync() else "Synced"}}
        found = self._cluster.get(APPLICATIONS, f"llm-{self._region}", namespace=NAMESPACE)
        self._cluster.update_status(APPLICATIONS, {**found, "status": status})


@contextmanager
def applied(servers: FakeServers, regions: Sequence[str], repository: TeamRepository) -> Iterator[list[Application]]:
    """While the regions' Applications follow the repository, several times a second."""
    found = [servers.do(partial(Application, servers.api(one).cluster, one, repository)) for one in regions]
    over = threading.Event()

    def follow() -> None:
        known: dict[str, list[list[Json]]] = {}
        while not over.wait(0.3):
            revision = repository.head
            if revision not in known:
                texts = [repository.text(path(region), revision) for region in regions]
                known[revision] = [list(yaml.safe_load_all(text)) for text in texts]
            for each, manifests in zip(found, known[revision], strict=True):
                servers.do(partial(each.sync, revision, manifests))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
