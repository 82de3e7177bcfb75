"""What a fleet on Kubernetes needs beside the cluster itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rollouts.kube.model import Json
from rollouts.model import Engine

Render = Callable[[Engine], Sequence[Json]]
"""Everything that the region needs to serve an engine, in the order in which it is applied; the Rollout is last."""


class Served(Protocol):
    """Who counts what the engines of a region answered."""

    async def served(self, version: str) -> Mapping[str, float]:
        """Requests answered by each engine of a version since it started, copies included, by the engine's name.

        Raises:
            OutsideError: when whoever counts is not there.
        """
        ...
