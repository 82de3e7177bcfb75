"""The object that splits a region's users, read and written as what it says of stable and canary.

Weights are the controller's, which sets them step by step; only the way back is ours too, so that users need not wait
for it. Copies are ours. Argo Rollouts' own `setMirrorRoute` does
nothing through the Gateway API plugin and says that it did (rollouts-plugin-trafficrouter-gatewayapi#32), and with
Istio it removes what has no `match`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rollouts.kube.model import Json, Resource
from rollouts.manifests.conventions import canary_service, stable_service


class RouteKind(Protocol):
    """One kind of such an object, for a delivery's name. Pure: manifests in, manifests out."""

    @property
    def resource(self) -> Resource:
        """What it is for the API server."""
        ...

    def weight(self, route: Json, name: str) -> int:
        """Percent of users whom it sends to the canary's Service."""
        ...

    def mirror(self, route: Json, name: str) -> int:
        """Percent of requests that it copies to the canary's Service."""
        ...

    def mirrored(self, route: Json, name: str, percent: int) -> Json:
        """The same route with that percent of requests copied, 0 for none; all else stays."""
        ...

    def weighted(self, route: Json, name: str, percent: int) -> Json:
        """The same route with that percent of users on the canary and the rest on the stable; all else stays."""
        ...


def share(weights: Mapping[str, int], name: str) -> int:
    """The canary's percent of what both Services get."""
    stable, canary = (weights.get(service(name), 0) for service in (stable_service, canary_service))
    return round(100 * canary / (stable + canary)) if canary else 0
