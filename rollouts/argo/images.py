"""Images of a pod template's containers."""

from __future__ import annotations

from copy import deepcopy

from rollouts.errors import NotPossible
from rollouts.kube.model import Json

ALL = "*"
"""As a container's name: every container."""

KINDS = ("initContainers", "containers", "ephemeralContainers")


def containers_of(holder: Json) -> list[Json]:
    """Every container of the template that a Rollout, Deployment or ReplicaSet holds."""
    spec = holder["spec"]["template"].get("spec") or {}
    return [container for kind in KINDS for container in spec.get(kind) or []]


def with_image(holder: Json, container: str, image: str) -> Json:
    """The object with another image in every container of that name; nothing else is touched.

    Raises:
        NotPossible: when no container has that name.
    """
    changed = deepcopy(holder)
    meant = [found for found in containers_of(changed) if container in {ALL, found.get("name")}]
    if not meant:
        names = ", ".join(str(found.get("name")) for found in containers_of(changed))
        raise NotPossible(f'unable to find container named "{container}"', hint=f"there are: {names or 'none'}")
    for found in meant:
        found["image"] = image
    return changed
