"""Names on which the one who writes an object or a request and the one who reads it must agree.

Labels of pods and objects, values of roles, headers of requests: rollouts, SLOs, gates and workflows use the same.
"""

from __future__ import annotations

import hashlib
import re

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

RESERVED = ("tidegate.dev/", MANAGED_BY_LABEL, POD_TEMPLATE_HASH)
"""How labels and annotations begin that nobody else may set."""

WOKEN = "tidegate.dev/woken"
"""Annotation of the Rollout: when its controller was last woken, which had not reacted to a write."""

_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FITS = re.compile(rf"{_WORD}([.]{_WORD})*")
_LONGEST = 63
_DIGEST = 6


def object_name(identity: str, suffix: str = "") -> str:
    """Return a Kubernetes name for what `identity` names: itself where it is one, else with a digest.

    A suffix is always the last word, so two identities never share a name under any suffixes of one length or other.
    """
    tail = f"-{suffix}" if suffix else ""
    room = _LONGEST - len(tail)
    if len(identity) <= room and _FITS.fullmatch(identity):
        return identity + tail
    readable = re.sub(r"[^a-z0-9]+", "-", identity.lower())[: room - _DIGEST - 1].strip("-")
    return f"{readable}-{digest(identity)}{tail}".lstrip("-")


def config_map_key(path: str) -> str:
    """Return a ConfigMap's key for the file at `path`: itself where it is one, else with a digest; keys have no `/`."""
    if re.fullmatch(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]{,99}", path):
        return path
    return f"{digest(path)}-{re.sub('[^-._a-zA-Z0-9]+', '_', path)[-90:]}"


def digest(name: str) -> str:
    """Return a few characters that tell `name` from others that look alike once what is not allowed is cut."""
    return hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
