"""The part of `fleet` that says how users reach a region's engines."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from rollouts.manifests.written import Block, Host, ObjectName
from tidegate.core.model import SpecModel
from tidegate.core.quantities import Duration


class Traffic(StrEnum):
    """Who splits a region's users between stable and canary."""

    GATEWAY_API = "gateway-api"
    """An HTTPRoute, whose weights Argo Rollouts sets through its Gateway API plugin."""
    ISTIO = "istio"
    """A VirtualService, whose weights Argo Rollouts sets by itself."""


PROXIES_IN = ("envoy-gateway-system", "istio-system")
"""Where Envoy Gateway runs every gateway's proxies, and where Istio's own ingress is, unless they were told otherwise.

A policy that names a namespace that is not there lets nobody in by it.
"""


class GatewaySpec(SpecModel):
    """The gateway that is there already, and the hosts that are this delivery's."""

    name: ObjectName
    namespace: ObjectName | None = None
    """The delivery's own when absent."""
    pods_in: tuple[ObjectName, ...] = PROXIES_IN
    """Namespaces where its proxies run, whom engines let in, beside its own."""
    listener: ObjectName | None = None
    """Its `sectionName`; all listeners when absent. Istio has none."""
    hosts: tuple[Host, ...] = ()
    """Names under which users ask for this model, beside that of their region's `entry`."""
    timeout: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """For a whole answer. Gateways cut a stream after 15 s or so when nobody says more."""
    direct: bool = False
    """Whether the hosts of each region's `stable_url` and `canary_url` lead to that arm, past all weights."""


class NetworkSpec(SpecModel):
    """Who may talk to engines, and to whom they may talk; all others may not."""

    ingress_from: tuple[ObjectName, ...] = ("monitoring",)
    """Namespaces beside the gateway's and its proxies': of Prometheus, and of whoever else may ask."""
    egress_to: tuple[Block, ...] = ()
    """Blocks of addresses such as 10.20.0.0/16, of the artifact store, when weights are pulled at start."""
