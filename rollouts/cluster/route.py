"""The port `Fleet` on two backends of one HTTPRoute: weights by compare-and-set, engines of somebody else behind them.

The rules are those of every fleet of four methods (`rollouts.base`); whose the region is, is known by the same Lease
and the same numbers as everywhere (`cluster.carrier`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from rollouts.argo.actions import change
from rollouts.base import BaseFleet, RegionReading, RegionSplit
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.desired_objects import count_ready
from rollouts.cluster.model import annotation, noted
from rollouts.cluster.peers import (
    PeerNotes,
    PeersSnapshot,
    RoutePlace,
    answers,
    changes,
    doubts,
    field_of,
    misfits,
    undone,
    what_is_missing,
)
from rollouts.cluster.region import CarriedRegion, Served, refuse_misfits
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotPossible, Overruled
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at, pod_problems, start_failure, written
from rollouts.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES, INFERENCE_POOLS, PODS, SERVICES, WORKLOADS
from rollouts.kube.retry import time_left
from rollouts.manifests.conventions import ROUTE_NOTES, UNATTENDED
from rollouts.manifests.objects.access import Right, route_rights
from rollouts.manifests.ownership import last_writer
from rollouts.manifests.theirs_spec import BackendKind, PeerSpec, WorkloadSpec
from rollouts.model import NOT_OURS_TO_START, Engine, ForeignObject, RegionState
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.process import note

POLL_SECONDS = 1.0
ANSWERS_WITHIN = 30.0
"""For gateways to say of a route that was written whether they take it."""

log = logging.getLogger(__name__)


class RouteFleet(CarriedRegion[PeersSnapshot], BaseFleet):
    """A `Fleet` of two backends of a route."""

    def __init__(
        self,
        place: RoutePlace,
        *,
        cluster: KubeClient,
        clock: Clock,
        served: Served | None = None,
        carrier: Carrier | None = None,
        champion: Engine | None = None,
    ) -> None:
        """Without `served` nothing is proven.

        `champion` is what serves by the registry. Without a `carrier` the fleet is read-only.
        """
        BaseFleet.__init__(self, place.region, entry=place.entry, clock=clock)
        self._place, self._peers, self._champion = place, place.reference.peers, champion
        workloads = (
            (WORKLOADS[each.workload.kind], each.workload.name) for each in self._peers.values() if each.workload
        )
        moving = ((HTTP_ROUTES, place.reference.route), *workloads)
        CarriedRegion.__init__(self, place, cluster, clock, moving=moving, served=served, carrier=carrier)
        self.series = {}

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        snapshot = await self._retries.run(self.look)
        refuse_misfits(self.region, misfits(snapshot))
        for doubt in doubts(snapshot.route):
            note(f"{self.region}: {doubt}")
        return snapshot.foreign_objects

    async def deploy(self, engine: Engine) -> RegionState:
        return await self._operate(lambda: self._deploy(engine))

    async def rollback(self, to: str | None) -> RegionState:
        self._give_up_start()
        return await super().rollback(to)

    async def engine_of(self, version: str) -> Engine | None:
        snapshot = await self._retries.run(self.look)
        peer = snapshot.peer_of(version)
        if peer is None or self._peers[peer].workload:
            return None
        digest = snapshot.version(peer)[1]
        return Engine(version=version, digest=digest, model=self._place.name, image=NOT_OURS_TO_START)

    @property
    def rights(self) -> tuple[Right, ...]:
        return route_rights(self._place.name, self._place.reference)

    async def start(self, engine: Engine) -> None:
        snapshot = await self.look()
        peer = snapshot.other
        known = {snapshot.stable: snapshot.version(snapshot.stable), peer: (engine.version, engine.digest)}
        # Said before the world is touched: what the other peer is about to serve. What a guard rolled back is over.
        notes = snapshot.notes.model_copy(update={"versions": known, "previous": False})
        await self._write(snapshot, notes.on(snapshot.found, without=UNATTENDED))
        theirs = self._peers[peer].workload
        before, operations = await self._asked(theirs, snapshot, engine) if theirs else ({}, [])
        try:
            if theirs and operations:
                await self._patch(theirs, operations, before)
                log.info("%s: version %s was asked for", self.region, engine.version)
            await self._until_ready(peer, engine)
        except EngineDidNotStart:
            if theirs and operations:
                await self._patch(theirs, undone(before, operations))
            raise

    async def route(self, split: RegionSplit) -> None:
        before = await self.look()
        stable, canary = (before.peer_of(each) if each else None for each in (split.stable, split.canary))
        assert stable is not None, "users are on one of the two, or go back to it"
        self._refuse_nobody(before, stable, split.weight)
        known = {peer: before.version(peer) for peer in self._peers}
        ended = before.notes.stable or stable != before.stable
        notes = PeerNotes(
            versions={peer: each for peer, each in known.items() if each[0] in split.versions.values()},
            stable=stable if canary else "",
            previous=split.previous is not None,
            weight=split.weight,
            mirror=split.mirror,
            emptied=None if canary else self._clock.now() if ended else before.notes.emptied,
        )
        # On the way back nobody is waited for.
        more = (split.previous and stable != before.stable) or split.weight > before.weight or split.mirror
        written = await self._cluster.replace(HTTP_ROUTES, before.routed(stable, notes))
        if more and written["spec"] != before.found["spec"]:
            await self._require_gateways(written, before.found)

    async def stop_unused(self) -> None:
        """Scale the workload down of a peer that has had no users for `fleet.keep`."""
        snapshot = await self._entered()
        peer = snapshot.unused(self._clock.now())
        if theirs := self._peers[peer].workload if peer else None:
            found = await self._cluster.get(WORKLOADS[theirs.kind], theirs.name)
            if field_of(found, theirs.replicas):
                await self._patch(theirs, [{"op": "replace", "path": theirs.replicas, "value": 0}], found)
            notes = snapshot.notes.model_copy(update={"previous": False, "emptied": None})
            await self._write(snapshot, notes.on(snapshot.found))

    async def read(self) -> RegionReading:
        return (await self.look()).reading

    async def look(self) -> PeersSnapshot:
        route = await self._cluster.find(HTTP_ROUTES, self._place.reference.route)
        self.fence.allows(route)
        found = await asyncio.gather(*map(self._backend, self._peers.values()))
        snapshot = PeersSnapshot(
            place=self._place,
            route=route,
            problems=dict(zip(self._peers, found, strict=True)),
            champion=self._champion,
            notes=noted(PeerNotes, annotation(route, ROUTE_NOTES)) or PeerNotes(),
        )
        self.series = {snapshot.version(peer)[0]: spec.series for peer, spec in self._peers.items()}
        return snapshot

    async def _backend(self, peer: PeerSpec) -> str:
        """Why no request reaches an engine of it; empty where one does."""
        if peer.kind is BackendKind.SERVICE:
            return "" if await self._endpoints(peer.backend) else f"Service {peer.backend} has no ready endpoint"
        pool = await self._cluster.find(INFERENCE_POOLS, peer.backend)
        if pool is None:
            return f"there is no InferencePool {peer.backend}"
        picker = str(at(pool, "spec", "endpointPickerRef", "name", default=""))
        if picker and not await self._endpoints(picker):
            return f"the endpoint picker {picker} of InferencePool {peer.backend} has no ready endpoint"
        ready = await count_ready(self._cluster, pool["spec"]["selector"]["matchLabels"])
        return "" if ready else f"no pod of InferencePool {peer.backend} is ready"

    async def _endpoints(self, service: str) -> int:
        slices = await self._cluster.list(ENDPOINT_SLICES, labels=f"kubernetes.io/service-name={service}")
        found = [each for one in slices for each in one.get("endpoints") or []]
        # One that says nothing of itself is ready (EndpointConditions).
        return sum((each.get("conditions") or {}).get("ready") is not False for each in found)

    async def _pods_behind(self, peer: PeerSpec) -> Sequence[Json]:
        pool = peer.kind is BackendKind.POOL
        found = await self._cluster.find(INFERENCE_POOLS if pool else SERVICES, peer.backend)
        labels = at(found, "spec", "selector", *(["matchLabels"] if pool else []), default={})
        return await self._cluster.list(PODS, labels=written(labels)) if labels else ()

    def _state(self, seen: PeersSnapshot) -> RegionState:
        state, note = BaseFleet._told(self, seen.reading), seen.unattended
        problems = [each for each in (state.problem, seen.refusal) if each]
        if seen.route is None:
            problems.append(f"HTTPRoute {self._place.reference.route} is gone")
        return state.model_copy(
            update={
                "problem": "; ".join(problems) or None,
                "foreign_change": seen.foreign_change,
                "route_writer": last_writer(seen.route) if seen.route else "",
                "foreign_objects": seen.foreign_objects,
                "taken_away": str(note) if note else "",
                "unattended": note,
            }
        )

    async def _deploy(self, engine: Engine) -> PeersSnapshot:
        if not self.fence.inside:
            refuse_misfits(self.region, misfits(await self.look()))
        snapshot = await self._entered()
        await self._note_way_back(snapshot.version(snapshot.stable)[0], engine.version)
        await BaseFleet.deploy(self, engine)
        return await self.look()

    async def _set_mirror(self, seen: PeersSnapshot, percent: int) -> PeersSnapshot:
        return await self._move(seen, lambda reading: reading.mirrored(percent), forward=percent > 0)

    async def _set_weight(self, seen: PeersSnapshot, weight: int) -> PeersSnapshot:
        return await self._move(seen, lambda reading: reading.shifted(weight), forward=weight > 0)

    async def _promote(self) -> PeersSnapshot:
        return await self._move(await self._entered(), RegionReading.promoted, forward=True)

    async def _rollback(self, to: str) -> PeersSnapshot:
        return await self._move(await self._looked(), lambda reading: reading.rolled_back(to), forward=False)

    async def _move(
        self, seen: PeersSnapshot, rule: Callable[[RegionReading], RegionSplit], *, forward: bool
    ) -> PeersSnapshot:
        """By the rules of every fleet of three methods; nobody is moved on whom somebody else has moved meanwhile."""
        if forward and seen.foreign_change:
            raise Overruled(seen.foreign_change.reason)
        await self._change(rule)
        return await self.look()

    async def _restart(self, version: str) -> PeersSnapshot:
        raise NotPossible(
            f"{self.region}: no backend serves version {version} any more", hint="deliver it: `tidegate deliver`"
        )

    def _way_back_of(self, seen: PeersSnapshot) -> str | None:
        return seen.split.stable

    async def _abort_at_once(self, to: str) -> None:
        """The weights alone."""
        snapshot = await self._looked()
        if snapshot.route is None or snapshot.split.canary is None or snapshot.split.stable != to:
            return
        self._refuse_nobody(snapshot, snapshot.stable, 0)
        back = snapshot.notes.model_copy(update={"weight": 0, "mirror": 0})
        await self._write(snapshot, snapshot.routed(snapshot.stable, back))

    def _refuse_nobody(self, before: PeersSnapshot, stable: str, weight: int) -> None:
        """No write sends all users to a backend without an engine while the other one has some."""
        other = before.place.reference.other(stable)
        served = before.weight if stable == before.stable else 100 - before.weight
        if served > weight and before.problems[stable] and not before.problems[other]:
            raise NotConfirmed(
                f"{self.region}: users stay on {other}: {before.problems[stable]}",
                hint="once it has one: `tidegate rollback`",
            )

    async def _require_gateways(self, written: Json, before: Json) -> None:
        """Wait until each gateway has seen the route; one that does not take it gets the one of before again."""
        deadline = self._clock.monotonic() + min(ANSWERS_WITHIN, time_left())
        route, said = written, list(answers(written))
        while not (said and all(seen for seen, _ in said)) and not any(why for _, why in said):
            if self._clock.monotonic() >= deadline:
                said = [(False, f"no gateway has said of HTTPRoute {route['metadata']['name']} that it takes it")]
                break
            await self._clock.sleep(POLL_SECONDS)
            route = await self._cluster.get(HTTP_ROUTES, self._place.reference.route)
            said = list(answers(route))
        if refused := next((why for _, why in said if why), ""):
            self.fence.allows(route)
            metadata = {**route["metadata"], "annotations": before["metadata"].get("annotations") or {}}
            await self._cluster.replace(HTTP_ROUTES, {**route, "metadata": metadata, "spec": before["spec"]})
            raise FleetError(f"{self.region}: {refused}; users are where they were", hint="see its controller's log")

    async def _write(self, snapshot: PeersSnapshot, changed: Json) -> None:
        if changed != snapshot.route:
            await self._cluster.replace(HTTP_ROUTES, changed)

    async def _asked(self, theirs: WorkloadSpec, snapshot: PeersSnapshot, engine: Engine) -> tuple[Json, list[Json]]:
        """The workload as it is, and what is to be asked of it."""
        other, replicas = self._peers[snapshot.stable].workload, None
        found = await self._cluster.get(WORKLOADS[theirs.kind], theirs.name)
        if other and (serving := await self._cluster.find(WORKLOADS[other.kind], other.name)):
            replicas = field_of(serving, other.replicas)
        return found, changes(found, theirs, engine, int(replicas or 1))

    async def _patch(self, theirs: WorkloadSpec, operations: list[Json], onto: Json | None = None) -> None:
        resource = WORKLOADS[theirs.kind]
        found = onto or await self._cluster.get(resource, theirs.name)
        self.fence.allows(found)
        await change(self._cluster, resource, found, operations)

    async def _until_ready(self, peer: str, engine: Engine) -> None:
        """Once the workload is as it was asked for, and its backend has engines that requests reach."""
        spec, begun = self._peers[peer], self._clock.monotonic()
        while missing := await self._missing(spec):
            died = start_failure(pods := await self._pods_behind(spec))
            waited = self._clock.monotonic() - begun
            if died or waited >= self._place.start_seconds or time_left() <= 0:
                raise EngineDidNotStart(
                    f"{self.region}: version {engine.version} did not start on {peer}: {died or missing}",
                    hint="--debug shows what its pods say",
                    detail=pod_problems(pods) or missing,
                )
            await self._clock.sleep(POLL_SECONDS)

    async def _missing(self, spec: PeerSpec) -> str:
        if theirs := spec.workload:
            found = await self._cluster.find(WORKLOADS[theirs.kind], theirs.name)
            if found is None:
                return f"there is no {theirs.kind} {theirs.name}"
            if missing := next(what_is_missing(found, theirs), ""):
                return missing
        return await self._backend(spec)
