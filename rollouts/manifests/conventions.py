"""Names, labels and ports that everything rendered here agrees on, and what reads it from outside."""

from __future__ import annotations

DELIVERY = "tidegate.dev/delivery"
"""On every object and every engine's pod: the delivery's name. Selectors choose engines by it alone."""

REGION, VERSION, ROLE = "tidegate.dev/region", "tidegate.dev/version", "tidegate.dev/role"
"""On every engine's pod; the role is set by Argo Rollouts. What scrapes engines copies them onto every series."""

DIGEST = "tidegate.dev/digest"
"""Annotation of the pod template: which model the engine serves."""

ATTEMPT = "tidegate.dev/attempt"
"""Annotation of the pod template: how often this version was put on trial here. Without it a version that was stable
not long ago would come back past all steps (`rollbackWindow`), and no gate would see it."""

PREVIOUS = "tidegate.dev/previous"
"""Annotation of the Rollout: the version that was stable before the last promotion."""

CARRIER = "tidegate.dev/carrier"
"""Annotation of the Rollout and of the route: the number of whoever carries the delivery. Whoever has a lower one was
replaced, and writes no more."""

CARRIED_BY = "tidegate.dev/carried-by"
"""Annotation of the Lease: the carrier in words for people."""

PLACEHOLDER = "tidegate.dev/placeholder"
"""On placeholder pods, which no selector of engines may match: the delivery's name."""

POD_TEMPLATE_HASH = "rollouts-pod-template-hash"
"""Argo Rollouts puts it on pods and into the selectors of both Services: that is how they become disjoint."""

STABLE, CANARY = "stable", "canary"
"""Values of `ROLE`, and ends of the two Services' names."""

ENGINE = "engine"
"""The container's name."""

PORT_NAME, PORT, SERVICE_PORT = "http", 8000, 80
"""Of the container, where `/metrics` is answered too, and of the Services."""

USERS = "users"
"""The name of the rule that carries users: its weights are those of stable and canary."""

GATEWAY_PLUGIN = "argoproj-labs/gatewayAPI"
"""As the controller's configuration names the plugin that moves an HTTPRoute's weights."""

MANAGED_BY = {"app.kubernetes.io/managed-by": "tidegate"}

LONGEST_NAME = 63
"""Of a Service, and of a label's value."""


def stable_service(delivery: str) -> str:
    """Whom users of the stable reach; blue-green calls it active."""
    return f"{delivery}-{STABLE}"


def canary_service(delivery: str) -> str:
    """Whom users of the canary reach; blue-green calls it preview."""
    return f"{delivery}-{CANARY}"


def warm_pool(delivery: str) -> str:
    """The Deployment of placeholder pods."""
    return f"{delivery}-warm-pool"


def public_keys(delivery: str) -> str:
    """The ConfigMap with the public keys of whoever builds engines: of the set-up, which tidegate may not write."""
    return f"{delivery}-keys"


PUBLIC_KEYS = "engines.pem"
"""The key of that ConfigMap."""


def driver(delivery: str) -> str:
    """The service account that tidegate itself acts as, where it runs in the cluster; engines have `delivery`'s."""
    return f"{delivery}-driver"


def lease(delivery: str) -> str:
    """The Lease of whoever carries the delivery in a region."""
    return f"{delivery}-carrier"


def cluster_wide(namespace: str, name: str) -> str:
    """A name for an object without namespace; deliveries of other namespaces have others."""
    return f"{namespace}-{name}"
