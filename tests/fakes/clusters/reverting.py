"""Those who write a region's objects back from elsewhere: Argo CD, `kubectl apply`.

Each as its documentation and source have it, on what the simulated API server does with patches and applies; what they
applied before and apply no more is left out. The real kubectl tells the same story in `tests/cluster/reverted.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from fakes.argo.mirror import difference
from fakes.clusters.region import user_shares
from fakes.kube.cluster import FakeCluster, merged
from fakes.kube.store import Event, copied

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


class ArgoCd:
    """An Application with self-heal: what differs from Git is applied again, but for what is ignored.

    `settings` are those of its spec: `ignoreDifferences`, with JSON pointers, and `syncPolicy.syncOptions`. Fields
    are taken out of both sides before they are compared (`ignoreNormalizer`: RFC 6902 `remove`; group and kind are
    globs, a name or namespace that is not given is any). With `RespectIgnoreDifferences=true` a sync gives the
    wanted object what was taken out of the live one (`normalizeTargetResources`: a merge patch).
    """

    def __init__(self, cluster: FakeCluster, git: Sequence[Json], settings: Json | None = None) -> None:
        self._cluster = cluster
        self.git = list(git)
        self._ignored = (settings or {}).get("ignoreDifferences", ())
        options = (settings or {}).get("syncPolicy", {}).get("syncOptions", ())
        self._respects = "RespectIgnoreDifferences=true" in options
        self._server_side = "ServerSideApply=true" in options

    def out_of_sync(self) -> list[str]:
        """Objects that differ from Git where that is not ignored."""
        return [_name(each) for each in self.git if self._differs(each)]

    def self_heal(self) -> list[str]:
        """Sync when anything is out of sync; says what was changed."""
        if not self.out_of_sync():
            return []
        targets = [self._target(each) for each in self.git]
        if not self._server_side:
            return kubectl_apply(self._cluster, targets, manager=ARGO_CD)
        for each in targets:
            self._cluster.apply(resource_of(each), each, manager=ARGO_CD, force=True)
        return [_name(each) for each in targets]

    def _differs(self, wanted: Json) -> bool:
        live = self._live(wanted)
        if live is None:
            return True
        here = self._normal(live)
        return merged(here, self._normal(wanted)) != here

    def _target(self, wanted: Json) -> Json:
        live = self._live(wanted)
        if live is None or not self._respects:
            return wanted
        kept = difference(self._normal(live), _plain(live))
        return merged(self._normal(wanted), kept)

    def _live(self, wanted: Json) -> Json | None:
        return self._cluster.find(resource_of(wanted), wanted["metadata"]["name"])

    def _normal(self, body: Json) -> Json:
        result = _plain(body)
        for rule in self._ignored:
            if _is_meant(rule, result):
                for pointer in rule.get("jsonPointers", ()):
                    _remove(result, pointer.split("/")[1:])
        return result


def _is_meant(rule: Mapping[str, Any], body: Json) -> bool:
    metadata = body["metadata"]
    return (
        fnmatchcase(resource_of(body).group, rule.get("group", ""))
        and fnmatchcase(body["kind"], rule["kind"])
        and rule.get("name", metadata["name"]) == metadata["name"]
        and rule.get("namespace", metadata.get("namespace")) == metadata.get("namespace")
    )


def _plain(body: Json) -> Json:
    """Without what the API server alone writes."""
    mine = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")
    metadata = {key: copied(value) for key, value in body["metadata"].items() if key not in mine}
    return {**{key: copied(value) for key, value in body.items() if key != "status"}, "metadata": metadata}


def _remove(body: Json, path: Sequence[str]) -> None:
    *above, last = (each.replace("~1", "/").replace("~0", "~") for each in path)
    for key in above:
        if not isinstance(body.get(key), dict):
            return
        body = body[key]
    body.pop(last, None)


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
