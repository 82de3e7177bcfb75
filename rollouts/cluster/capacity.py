"""Whether a version's engines fit besides those that serve, checked before anything is changed.

A trial needs all its engines again: Argo Rollouts promotes only when the new version is whole, and the stable one
stays whole until then. A trial that fits at its beginning and not at its promotion would hold users in between.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from rollouts.cluster.model import RegionConfig
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import Forbidden
from rollouts.kube.client import KubeClient
from rollouts.kube.model import EVERYWHERE
from rollouts.kube.objects import at, format_quantity, labels_of, misfits, name_of, parse_quantity, resource_requests
from rollouts.kube.resources import NODES, PODS, RESOURCE_QUOTAS
from rollouts.manifests.conventions import PLACEHOLDER
from tidegate.core.errors import Refused
from tidegate.core.model import Json, Value

ENDED = {"Succeeded", "Failed"}
"""Phases of pods that hold nothing any more."""

log = logging.getLogger(__name__)


class EngineDemand(Value):
    """Engines of a version besides those that serve."""

    first: int
    """Until it gets users."""
    most: int
    """At its height."""


class Headroom(Value):
    """How many more pods of engines fit."""

    pods: int
    bound_by: str
    """What there is no more of, for people."""


def engine_demand(rollout: Json, live: Json | None) -> EngineDemand:
    """What a Rollout, as it is rendered, asks for; with an autoscaler it is as many as it has now."""
    spec = rollout["spec"]
    said = spec.get("replicas") or at(live, "spec", "replicas")
    replicas, canary = 1 if said is None else int(said), spec["strategy"]["canary"]
    if live is None:
        return EngineDemand(first=replicas, most=replicas)
    scales = (step["setCanaryScale"] for step in canary.get("steps") or [] if "setCanaryScale" in step)
    scale: Json = next(scales, {})
    first = int(scale.get("replicas") or math.ceil(replicas * int(scale.get("weight") or 0) / 100) or 1)
    if canary.get("dynamicStableScale"):
        return EngineDemand(first=first, most=first)
    return EngineDemand(first=first, most=max(first, replicas))


def headroom_on_nodes(nodes: Sequence[Json], pods: Sequence[Json], engine: Json) -> Headroom | None:
    """How many pods such as `engine` the nodes take now; None where no node is known.

    Placeholders make room the moment that an engine comes, so they count for nothing.
    """
    if not nodes:
        return None
    taken: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        if at(pod, "status", "phase") not in ENDED and PLACEHOLDER not in labels_of(pod):
            taken[at(pod, "spec", "nodeName", default="")].append(pod)
    against = {name_of(node): misfits(engine, node) for node in nodes}
    fitting = [node for node in nodes if not against[name_of(node)]]
    if fitting:
        room = sum(_room_of(node, taken[name_of(node)], engine) for node in fitting)
        return Headroom(pods=room, bound_by=f"{len(fitting)} nodes take such pods")
    counts = Counter(reason for reasons in against.values() for reason in reasons).most_common(3)
    told = (f"{reason} ({count} nodes)" for reason, count in counts)
    return Headroom(pods=0, bound_by="; ".join(("no node takes such a pod", *told)))


def _room_of(node: Json, taken: Sequence[Json], engine: Json) -> int:
    used: dict[str, Decimal] = defaultdict(Decimal)
    for pod in taken:
        for name, quantity in _asked(pod).items():
            used[name] += quantity
    has = at(node, "status", "allocatable", default={})
    limits = [
        int((parse_quantity(has[name]) - used[name]) // each)
        for name, each in _asked(engine).items()
        if name in has and each > 0
    ]
    return max(0, min(limits, default=0))


def _asked(pod: Json) -> Mapping[str, Decimal]:
    return {**resource_requests(pod), "pods": Decimal(1)}


def headroom_in_quotas(quotas: Sequence[Json], engine: Json) -> Iterator[Headroom]:
    """How many each quota of the namespace allows."""
    asked = _asked(engine)
    for quota in quotas:
        for key, hard in at(quota, "status", "hard", default={}).items():
            if each := asked.get(key.removeprefix("requests.")):
                left = parse_quantity(hard) - parse_quantity(at(quota, "status", "used", key, default="0"))
                told = f"quota {name_of(quota)} has {format_quantity(left)} {key} left"
                yield Headroom(pods=max(0, int(left // each)), bound_by=told)


def refuse_without_headroom(version: str, need: EngineDemand, rooms: Sequence[Headroom]) -> None:
    """Say no while nothing is changed, with what would fit.

    Raises:
        Refused: with the numbers.
    """
    tightest = min(rooms, key=lambda room: room.pods, default=None)
    if tightest is None or need.most <= tightest.pods:
        return
    raise Refused(
        f"version {version} needs {need.most} engines besides those that serve, and there is room for "
        f"{tightest.pods}: {tightest.bound_by}",
        hint=f"bring nodes for {need.most - tightest.pods} more, or serve with fewer `replicas`",
    )


async def require_headroom(
    cluster: KubeClient, config: RegionConfig, snapshot: RegionSnapshot, rollout: Json, version: str
) -> None:
    """Return when the version's engines fit, or when nobody may see whether they do.

    Raises:
        Refused: they do not; nothing was changed.
    """
    engine = {"metadata": {"name": version}, "spec": rollout["spec"]["template"]["spec"]}
    need = engine_demand(rollout, snapshot.rollout if snapshot.stable else None)
    try:
        rooms = list(headroom_in_quotas((await cluster.list(RESOURCE_QUOTAS)).items, engine))
        if not config.nodes_grow:
            nodes, pods = await cluster.list(NODES), await cluster.list(PODS, namespace=EVERYWHERE)
            room = headroom_on_nodes(nodes.items, pods.items, engine)
            rooms += [room] if room else []
    except Forbidden as error:
        log.warning("%s: it is unknown whether there is room for version %s: %s", config.region, version, error)
        return
    refuse_without_headroom(version, need, rooms)
    log.info("%s: version %s gets %s engines, %s at most", config.region, version, need.first, need.most)
