"""The parts of `fleet` about traffic: who splits it, the gateway before the engines, who may talk to them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from pydantic import Field

from rollouts.manifests.fields import Block, Host, ObjectName
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Duration

PROXIES_IN = ("envoy-gateway-system", "istio-system")
"""Where Envoy Gateway runs every gateway's proxies, and where Istio's own ingress is, unless they were told otherwise.

A policy that names a namespace that is not there lets nobody in by it.
"""


INSIDE = "one that users do not reach, such as `direct: {listener: inside}` or `direct: {name: GATEWAY}`"


class InsideSpec(SpecModel):
    """Where those ask who may ask one arm alone: tidegate, and nobody outside your own network."""

    name: ObjectName | None = None
    """Another gateway; that of users when absent."""
    namespace: ObjectName | None = None
    """Of that other gateway; that of users' gateway when absent."""
    listener: ObjectName | None = None
    """Its `sectionName`; needed where the gateway is that of users. Istio has none."""


class GatewaySpec(SpecModel):
    """The gateway that is there already, and the hosts that are this delivery's."""

    name: ObjectName
    namespace: ObjectName | None = None
    """The delivery's own when absent."""
    pods_in: tuple[ObjectName, ...] = PROXIES_IN
    """Namespaces where its proxies run, whom engines let in, besides its own."""
    listener: ObjectName | None = None
    """Its `sectionName`; all listeners when absent. Istio has none."""
    route: ObjectName | None = None
    """The route of users; the delivery's name when absent. One of yours has to be adopted."""
    hosts: tuple[Host, ...] = ()
    """Names under which users ask for this model, besides that of their region's `entry`."""
    timeout: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """For a whole answer. Gateways cut a stream after 15 s or so when nobody says more."""
    direct: InsideSpec | None = None
    """A gateway or listener that users do not reach, at which the hosts of each region's `stable_url` and `canary_url`
    lead to that arm, past all weights; no such routes when absent."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Routes past all weights where users are."""
        inside = self.direct
        if inside is None or inside.name not in {None, self.name} or inside.namespace not in {None, self.namespace}:
            return
        if inside.listener is None or inside.listener == self.listener:
            yield SpecConflict(("direct",), "the gateway that users reach", INSIDE)


class NetworkSpec(SpecModel):
    """Who may talk to engines, and to whom they may talk; all others may not."""

    ingress_from: tuple[ObjectName, ...] = ("monitoring",)
    """Namespaces besides the gateway's and its proxies': of Prometheus, and of anyone else who may ask."""
    egress_to: tuple[Block, ...] = ()
    """Blocks of addresses such as 10.20.0.0/16, of the artifact store, when weights are pulled at start."""
