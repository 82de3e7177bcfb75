"""The section `fleet` of a delivery's spec: the engines on this machine, or those of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from rollouts.manifests.reference_spec import ReferencedFleetSpec
from rollouts.manifests.route_spec import RouteFleetSpec
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import SpecModel
from tidegate.core.spec import NAME
from tidegate.core.units import Duration

Port = Annotated[int, Field(ge=1024, le=65535)]
Name = Annotated[str, Field(pattern=NAME)]


class LocalFleet(SpecModel):
    """The fleet on this machine; a region without a port gets a free one."""

    example = "{kind: local}"
    kind: Literal["local"] = "local"
    ports: Mapping[Name, Port] = {}
    unattended: Duration = timedelta(minutes=15)
    """How long nothing may be heard of the one who carries a trial that lives; of one that is gone
    it is known at once."""


BY_REFERENCE = "argo with rollout"  # as a wrong kind is told of those that there are


def _kind_of(fleet: object) -> str:
    """Whose rules apply: one that does not say is on this machine, unless it has what clusters alone have."""
    if isinstance(fleet, Mapping):
        kind = str(fleet.get("kind", "argo" if "regions" in fleet else "local"))
        return BY_REFERENCE if kind == "argo" and "rollout" in fleet else kind
    return BY_REFERENCE if isinstance(fleet, ReferencedFleetSpec) else str(getattr(fleet, "kind", "local"))


Fleet = Annotated[
    Annotated[LocalFleet, Tag("local")]
    | Annotated[ArgoFleetSpec, Tag("argo")]
    | Annotated[ReferencedFleetSpec, Tag(BY_REFERENCE)]
    | Annotated[RouteFleetSpec, Tag("route")],
    Discriminator(_kind_of),
]
