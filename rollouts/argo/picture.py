"""Everything that `tidegate rollout get` shows of one rollout: numbers, images, and the tree below them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rollouts.argo.family import Family
from rollouts.argo.health import Health
from rollouts.argo.model import Rollout
from rollouts.argo.phase import Phase, phase_of
from rollouts.argo.steps import step_text
from rollouts.argo.tree import Node, roles_of, tree_of
from rollouts.kube.model import Json
from tidegate.core.model import Value


class Row(Value):
    """One rollout in a list (`cmd/list/rollloutinfo.go`)."""

    name: str
    namespace: str
    strategy: str
    """`canary` or `blue-green`."""
    phase: Phase
    """Argo Rollouts' word."""
    health: Health
    step: int | None = None
    """The index of the running step; as many as there are steps when all are done. None without steps."""
    steps: int = 0
    set_weight: int | None = None
    """Percent of users that its steps ask for; None for blue-green."""
    actual_weight: int | None = None
    """Percent that the traffic router says it set, or that pods stand for without one."""
    desired: int
    current: int
    updated: int
    ready: int
    available: int


class Image(Value):
    """An image that runs, and as what."""

    image: str
    roles: tuple[str, ...]


class Picture(Row):
    """One rollout in full."""

    running_step: str = ""
    """Such as `setWeight: 25`; empty when none runs."""
    images: tuple[Image, ...]
    tree: Node


def row_of(rollout: Json, health: Health, *, replica_sets: Sequence[Json] = (), workload: Json | None = None) -> Row:
    """The numbers of a rollout; without its ReplicaSets the actual weight of an unrouted canary is not known."""
    seen = Rollout(rollout)
    return Row(
        name=seen.name,
        namespace=seen.namespace,
        strategy="blue-green" if seen.blue_green is not None else "canary",
        phase=phase_of(rollout, workload=workload).phase,
        health=health,
        step=seen.step_index if seen.steps else None,
        steps=len(seen.steps),
        set_weight=None if seen.canary is None else seen.set_weight,
        actual_weight=_actual_weight(seen, replica_sets),
        desired=seen.replicas,
        current=seen.status.get("replicas") or 0,
        updated=seen.status.get("updatedReplicas") or 0,
        ready=seen.status.get("readyReplicas") or 0,
        available=seen.status.get("availableReplicas") or 0,
    )


def picture_of(family: Family, health: Health, *, now: datetime) -> Picture:
    """All of it."""
    seen = Rollout(family.rollout)
    row = row_of(family.rollout, health, replica_sets=family.replica_sets, workload=family.workload)
    return Picture(
        **dict(row),
        running_step=step_text(seen.step) if seen.step and seen.in_progress else "",
        images=_images(seen, family.replica_sets),
        tree=tree_of(family, health, now=now),
    )


def _actual_weight(seen: Rollout, replica_sets: Sequence[Json]) -> int | None:
    """`NewRolloutInfo`: what the router wrote, else what the steps ask for; without a router, by available pods."""
    if seen.canary is None:
        return None
    if seen.step is None:
        return 100
    available = seen.status.get("availableReplicas") or 0
    if not available:
        return 0
    if seen.canary.get("trafficRouting") is None:
        canary = [each for each in replica_sets if "canary" in roles_of(seen, each)]
        return sum((each.get("status") or {}).get("availableReplicas") or 0 for each in canary) * 100 // available
    weights = (seen.status.get("canary") or {}).get("weights") or {}
    return int((weights.get("canary") or {}).get("weight", seen.set_weight))


def _images(seen: Rollout, replica_sets: Sequence[Json]) -> tuple[Image, ...]:
    roles: dict[str, set[str]] = {}
    for each in replica_sets:
        if not (each.get("status") or {}).get("replicas"):
            continue
        for container in each["spec"]["template"]["spec"].get("containers") or []:
            roles.setdefault(container.get("image", ""), set()).update(roles_of(seen, each))
    return tuple(Image(image=image, roles=tuple(sorted(found))) for image, found in sorted(roles.items()))
