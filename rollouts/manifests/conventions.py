"""Names, labels and ports that everything rendered here agrees on, and what reads it from outside."""

from __future__ import annotations

from enum import StrEnum

from tidegate.core.names import CANARY, STABLE

DIGEST = "tidegate.dev/digest"
"""Annotation of the pod template: which model the engine serves."""

LAUNCH = "tidegate.dev/launch"
"""Annotation of the pod template: how an image that tidegate did not build is started, as JSON. Without it the image is
one of tidegate's own, which knows."""

ATTEMPT = "tidegate.dev/attempt"
"""Annotation of the pod template: how often this version was put on trial here. Without it a version that was stable
not long ago would come back past all steps (`rollbackWindow`), and no gate would see it."""

PREVIOUS = "tidegate.dev/previous"
"""Annotation of the Rollout, or of the stable's Service: the version that was stable before the last promotion."""

CARRIER = "tidegate.dev/carrier"
"""Annotation of the Rollout and of the route: the number of the one who carries the delivery. Anyone who has a lower
one was replaced, and writes no more."""

CARRIED_BY = "tidegate.dev/carried-by"
"""Annotation of the Lease: the carrier in words for people."""

CARRIED_FOR = "tidegate.dev/carried-for"
"""Annotation of the Lease: the key that the delivery was opened with, such as a workflow's UID; empty for none."""

WAY_BACK = "tidegate.dev/way-back"
"""Annotation of the Lease: the version that served here when the delivery's own came. It stands from before the first
write of the delivery until it has delivered everywhere, so that nobody else need be asked where users go back to."""

NOTES = "tidegate.dev/notes"
"""Annotation of the Lease: what is remembered of a Rollout of others, to which nothing is added, as JSON."""

ROUTE_NOTES = "tidegate.dev/peers"
"""Annotation of an HTTPRoute with two backends: which version each serves, and what was asked last, as JSON."""

UNATTENDED = "tidegate.dev/unattended"
"""Annotation of the Rollout, or of the stable's Service: which trial the region's guard rolled back last, when, and who
had carried it, as JSON."""

GUARD = "tidegate.dev/guard"
"""On the guard's pod, which no selector of engines may match: the delivery's name."""

PLACEHOLDER = "tidegate.dev/placeholder"
"""On placeholder pods, which no selector of engines may match: the delivery's name."""

ENGINE, WEIGHTS = "engine", "weights"
"""Names of the containers of an engine's pod: the engine, and the one that pulls its weights into a shared cache."""

WEIGHTS_TOKEN = "TIDEGATE_WEIGHTS_TOKEN"
"""The variable with the token of the one who pulls."""

PORT_NAME, PORT, SERVICE_PORT = "http", 8000, 80
"""Of the container, where `/metrics` is answered too, and of the Services."""

USERS = "users"
"""The name of the rule that carries users: its weights are those of stable and canary."""

GATEWAY_PLUGIN = "argoproj-labs/gatewayAPI"
"""As the controller's configuration names the plugin that moves an HTTPRoute's weights."""

LONGEST_NAME = 63
"""Of a Service, and of a label's value."""


def stable_service(delivery: str) -> str:
    """Whom users of the stable reach."""
    return f"{delivery}-{STABLE}"


def canary_service(delivery: str) -> str:
    """Whom users of the canary reach."""
    return f"{delivery}-{CANARY}"


def public_keys(delivery: str) -> str:
    """The ConfigMap with the public keys of the one who builds engines: of the set-up, which tidegate may not write."""
    return f"{delivery}-keys"


PUBLIC_KEYS = "engines.pem"
"""The key of that ConfigMap."""


def samples_request(delivery: str) -> str:
    """The ConfigMap that says what engines are to keep of users' requests; there only while somebody asks for it."""
    return f"{delivery}-samples"


def driver(delivery: str) -> str:
    """The service account that tidegate itself acts as, where it runs in the cluster; engines have `delivery`'s."""
    return f"{delivery}-driver"


def guard(delivery: str) -> str:
    """The Deployment that ends a trial which nobody carries, its service account and its rights."""
    return f"{delivery}-guard"


def lease(delivery: str) -> str:
    """The Lease of the one who carries the delivery in a region."""
    return f"{delivery}-carrier"


def cluster_wide(namespace: str, name: str) -> str:
    """A name for an object without namespace; deliveries of other namespaces have others.

    A dot joins the two, which have none: with a dash, `chat` of `serving-eu` and `eu-chat` of `serving` were one.
    """
    return f"{namespace}.{name}"


class RenderPart(StrEnum):
    """One of them."""

    SETUP = "setup"
    """An administrator, once: accounts, rights, network policy, the guard, and what the spec asks for besides."""
    SERVING = "serving"
    """tidegate, with every delivery: all that the rights of the set-up allow."""


class TrafficRouter(StrEnum):
    """Who splits a region's users between stable and canary."""

    GATEWAY_API = "gateway-api"
    """An HTTPRoute, whose weights Argo Rollouts sets through its Gateway API plugin."""
    ISTIO = "istio"
    """A VirtualService, whose weights Argo Rollouts sets by itself."""
