"""Looks for room before a version is brought up."""

from __future__ import annotations

import logging

from rollouts.cluster.capacity import Room, need_of, refuse_without_room, room_in, room_on
from rollouts.cluster.place import Place
from rollouts.cluster.seen import Seen
from rollouts.errors import Forbidden
from rollouts.kube.model import EVERYWHERE, Json
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import NODES, PODS, RESOURCE_QUOTAS

log = logging.getLogger(__name__)


async def require_room(cluster: Cluster, place: Place, seen: Seen, rollout: Json, version: str) -> None:
    """Return when the version's engines fit, or when nobody may see whether they do.

    Raises:
        CapacityError: they do not; nothing was changed.
    """
    engine = {"metadata": {"name": version}, "spec": rollout["spec"]["template"]["spec"]}
    try:
        rooms = await _rooms(cluster, engine, nodes_grow=place.nodes_grow)
    except Forbidden as error:
        log.warning("%s: nobody knows whether there is room for version %s: %s", place.region, version, error)
        return
    need = need_of(rollout, seen.rollout if seen.stable else None)
    refuse_without_room(version, need, rooms)
    log.info("%s: version %s gets %s engines, %s at most", place.region, version, need.first, need.most)


async def _rooms(cluster: Cluster, engine: Json, *, nodes_grow: bool) -> list[Room]:
    rooms = list(room_in((await cluster.list(RESOURCE_QUOTAS)).items, engine))
    if nodes_grow:
        return rooms
    nodes, pods = await cluster.list(NODES), await cluster.list(PODS, namespace=EVERYWHERE)
    room = room_on(nodes.items, pods.items, engine)
    return [*rooms, room] if room else rooms
