"""Names on which the one who writes an object or a request and the one who reads it must agree.

Labels of pods and objects, values of roles, headers of requests: rollouts, SLOs, gates and workflows use the same.
"""

from __future__ import annotations

DELIVERY = "tidegate.dev/delivery"
"""Label of every object and of every engine's pod: the delivery's name. Selectors choose engines by it alone."""

REGION, VERSION = "tidegate.dev/region", "tidegate.dev/version"
"""Labels of every engine's pod: its region, and the registry's number of the model version. What scrapes engines
copies them onto every series, and the role with them."""

ROLE = "tidegate.dev/role"
"""Label that Argo Rollouts sets from `canaryMetadata` and `stableMetadata`; a pod without it
serves the previous version."""

POD_TEMPLATE_HASH = "rollouts-pod-template-hash"
"""Label that Argo Rollouts puts on pods and into the selectors of both Services: that is how they become disjoint."""

STABLE, CANARY = "stable", "canary"
"""Values of `ROLE`, and ends of the two Services' names."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""Kubernetes' own label for the tool that writes an object."""

MANAGED_BY = {MANAGED_BY_LABEL: "tidegate"}
"""On every object that tidegate writes."""

ROLE_HEADER, VERSION_HEADER = "x-tidegate-role", "x-tidegate-version"
"""Headers of every answer: which engine gave it. The load's records, and so the gates, go by them."""

REGENERATES_HEADER = "x-tidegate-regenerates"
"""Header of a request whose user was not content with an answer and asks again: the version that gave it."""

RESERVED = ("tidegate.dev/", MANAGED_BY_LABEL, POD_TEMPLATE_HASH)
"""How labels and annotations begin that nobody else may set."""

WOKEN = "tidegate.dev/woken"
"""Annotation of the Rollout: when its controller was last woken, which had not reacted to a write."""
