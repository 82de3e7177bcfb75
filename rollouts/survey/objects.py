"""The objects of a namespace by kind, as they were read."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.model import Resource
from rollouts.kube.objects import name_of
from tidegate.core.model import Json


class Objects:
    """Collects what was read, and what could not be."""

    def __init__(self) -> None:
        self._found: dict[Resource, list[Json]] = {}
        self.unread: list[str] = []
        """Kinds, and why."""

    def add(self, resource: Resource, bodies: Iterable[Json]) -> None:
        """More of one kind."""
        self._found.setdefault(resource, []).extend(bodies)

    def all(self, resource: Resource) -> list[Json]:
        """Every one of that kind, by name."""
        return sorted(self._found.get(resource, []), key=name_of)
