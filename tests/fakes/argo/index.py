"""What belongs to whom: the controllers' informers and their indexes.

Upstream: the indexers in `rollout/controller.go` and `controller/controller.go`. Reading by index keeps a
reconciliation as fast among 10,000 rollouts as among one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fakes.argo.objects import controller_of
from fakes.argo.ports import Cluster
from fakes.kube.store import Event

from rollouts.kube.model import Json, Resource

Place = tuple[str, str]
"""Namespace and name."""

_NAMED = ("Service", "templateName", "httpRoute", "name", "workloadRef")


class Index:
    """Follows one cluster's changes; tell it of what was there before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._owned: dict[tuple[str, str], dict[Place, None]] = defaultdict(dict)
        self._named: dict[Place, dict[Place, None]] = defaultdict(dict)
        self._names: dict[Place, frozenset[str]] = {}

    def follow(self, event: Event) -> None:
        place = (event.namespace, event.name)
        self._own(event, place)
        if event.kind.plural == "rollouts":
            self._name(place, frozenset() if event.change == "DELETED" else names_in(event.after["spec"]))

    def owned(self, resource: Resource, owner: Json) -> list[Json]:
        """All of a kind that this object controls, in the order in which they came."""
        places = self._owned.get((owner["metadata"]["uid"], resource.plural), {})
        found = (self._cluster.find(resource, name, namespace=where) for where, name in tuple(places))
        return [one for one in found if one is not None]

    def naming(self, namespace: str, name: str) -> list[Place]:
        """Rollouts whose spec refers to an object of this name."""
        return list(self._named.get((namespace, name), ()))

    def _own(self, event: Event, place: Place) -> None:
        owner = controller_of(event.after)
        if owner is None:
            return
        places = self._owned[owner["uid"], event.kind.plural]
        if event.change == "DELETED":
            places.pop(place, None)
        else:
            places[place] = None

    def _name(self, place: Place, names: frozenset[str]) -> None:
        for name in self._names.get(place, frozenset()) - names:
            self._named[place[0], name].pop(place, None)
        for name in names:
            self._named[place[0], name][place] = None
        self._names[place] = names


def names_in(spec: Json) -> frozenset[str]:
    """Names of services, routes, templates and workloads in a Rollout's spec, without its pods."""
    parts = {key: spec[key] for key in ("strategy", "workloadRef") if key in spec}
    return frozenset(_names(parts))


def _names(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if isinstance(value, str) and key.endswith(_NAMED):
                yield value
            yield from _names(value)
    elif isinstance(part, list):
        for one in part:
            yield from _names(one)
