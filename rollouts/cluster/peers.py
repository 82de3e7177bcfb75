"""Two backends of one HTTPRoute: which version each serves, who has users, what the gateways say of it. Pure.

And the workloads of others behind them: fields that say a version, and whether it has come up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from jsonpointer import resolve_pointer

from rollouts.base import RegionReading, RegionSplit, ServingVersion
from rollouts.cluster.model import Place, RegionView
from rollouts.errors import NotPossible
from rollouts.kube.objects import at, condition
from rollouts.kube.resources import INFERENCE_POOLS
from rollouts.manifests.conventions import ROUTE_NOTES
from rollouts.manifests.ownership import last_writer
from rollouts.manifests.routers import HttpRoutes
from rollouts.manifests.theirs_spec import BackendKind, RouteReference, WorkloadKind, WorkloadSpec, filled
from rollouts.model import Engine, ForeignChange
from tidegate.core.model import Json, Value
from tidegate.core.text import one_line, shortened

UNKNOWN = "unknown"
"""The version of a peer of which nothing was noted."""


class RoutePlace(Place):
    """One delivery in one region, whose users two backends of a route share."""

    reference: RouteReference
    urls: Mapping[str, str] = {}
    """Where engines of each peer answer, whatever the weights."""
    keep_seconds: float | None = None
    """How long a peer without users keeps its engines; None until it gets the next version."""

    @property
    def by_reference(self) -> bool:
        return True


class PeerNotes(Value):
    """What an annotation of the route remembers, as it was asked for last."""

    versions: Mapping[str, tuple[str, str]] = {}
    """Version and digest by peer."""
    stable: str = ""
    """The peer that users go back to while the other one is on trial; empty while none is."""
    previous: bool = False
    """Whether the peer without users is the one that had them before the last promotion."""
    weight: int = 0
    """Percent of users on the peer that is on trial."""
    mirror: int = 0
    """Percent of requests copied to it."""
    emptied: datetime | None = None
    """When the peer without users lost them; None once its engines are gone too."""

    def on(self, route: Json, *, without: str = "") -> Json:
        """The route with this, and without that annotation."""
        metadata = route["metadata"]
        said = {key: each for key, each in (metadata.get("annotations") or {}).items() if key != without}
        said[ROUTE_NOTES] = self.model_dump_json(exclude_defaults=True)
        return {**route, "metadata": {**metadata, "annotations": said}}


class PeersSnapshot(RegionView):
    """A region at one moment."""

    def __init__(
        self,
        place: RoutePlace,
        route: Json | None,
        problems: Mapping[str, str],
        *,
        champion: Engine | None = None,
        notes: PeerNotes | None = None,
    ) -> None:
        """`problems` says why no request reaches an engine of a peer, and is empty where one does.

        `champion` is what serves by the registry, where nothing was noted yet.
        """
        super().__init__(place, route)
        self.place, self.route, self.problems, self.champion = place, route, problems, champion
        self.notes = notes or PeerNotes()
        first, second = place.reference.peers
        led = second if route and self.routes(first).weight(route) > 50 else first
        self.stable = self.notes.stable if self.notes.stable in place.reference.peers else led
        """The peer that users are on, or go back to."""
        self.other = place.reference.other(self.stable)
        """It gets the next version."""
        self.weight = self.routes(self.stable).weight(route) if route else 0
        """Percent of users on the other peer; `mirror` is that of copies."""
        self.mirror = self.routes(self.stable).mirror(route) if route else 0
        self.serving = self.version(self.stable)[0]
        self.asked = (*self.version(self.other), 1)
        """What the other peer serves."""
        self.on_trial = waiting = self.asked[0]
        self.step = self.weight
        """How far the trial is."""
        self.split = RegionSplit(
            stable=self.serving,
            canary=waiting if self.notes.stable else None,
            previous=waiting if self.notes.previous and not self.notes.stable else None,
            weight=self.weight,
            mirror=self.mirror,
        )
        """As it is in force."""
        self.going_on = self.split.canary is not None and route is not None and not self.foreign_objects
        """Whether one is on trial, on a route that is there and this delivery's."""
        self.refusal = next((said for _, said in answers(route or {}) if said), "")
        """What a gateway has against the route as it is; empty while none has anything."""

    def routes(self, stable: str) -> HttpRoutes:
        """What reads and writes the route where that peer is the stable."""
        peers = self.place.reference.peers
        return HttpRoutes(peers[stable].backend, peers[self.place.reference.other(stable)].backend)

    def routed(self, stable: str, notes: PeerNotes) -> Json:
        """The route with these notes, and users and copies as they say; all else stays."""
        routes = self.routes(stable)
        return notes.on(routes.mirrored(routes.weighted(self.found, notes.weight), notes.mirror))

    def version(self, peer: str) -> tuple[str, str]:
        """Version and digest that a peer serves, as far as it is known."""
        if known := self.notes.versions.get(peer):
            return known
        champion = self.champion if peer == self.stable else None
        return (champion.version, champion.digest) if champion else (UNKNOWN, "")

    def peer_of(self, version: str) -> str | None:
        """Who serves that version."""
        return next((peer for peer in (self.stable, self.other) if self.version(peer)[0] == version), None)

    def unused(self, now: datetime) -> str:
        """The peer whose engines tidegate started and has no use for any more; empty for none.

        Without a ready engine of the stable those of the other are the only ones left to go back to.
        """
        kept, since = self.place.keep_seconds, self.notes.emptied
        if kept is None or since is None or (now - since).total_seconds() < kept:
            return ""
        needed = self.notes.stable or self.weight or self.problems[self.stable]
        return self.other if self.place.reference.peers[self.other].workload and not needed else ""

    @property
    def reading(self) -> RegionReading:
        """For the rules of a fleet: peers of which nobody knows what they serve have no part in it."""
        engines = list[ServingVersion]()
        for peer in (self.stable, self.other):
            if peer == self.stable or peer in self.notes.versions:
                (version, digest), problem = self.version(peer), self.problems[peer] or None
                place = {"url": self.place.urls.get(peer, ""), "problem": problem}
                engines.append(ServingVersion(version=version, digest=digest, ready=not problem, **place))
        return RegionReading(split=self.split, engines=tuple(engines), entry_up=not self.refusal)

    @property
    def foreign_change(self) -> ForeignChange | None:
        """That somebody else moved users of a trial; None when the weights are what was asked last."""
        if self.route is None or not self.notes.stable:
            return None
        if (self.notes.weight, self.notes.mirror) == (self.weight, self.mirror):
            return None
        who, name = last_writer(self.route) or "somebody", self.place.reference.route
        return ForeignChange(version="", reason=f"{who} wrote the backends of HTTPRoute {name}")


def answers(route: Json) -> Iterator[tuple[bool, str]]:
    """What each of its gateways says: whether it has seen the route as it is, and what it has against it.

    Of the route's own `status.parents`: each has to take the route (`Accepted`) and find its backends
    (`ResolvedRefs`), for the generation that is there.
    """
    generation = int(route.get("metadata", {}).get("generation") or 0)
    for parent in (route.get("status") or {}).get("parents") or []:
        known = {each.get("type"): each for each in parent.get("conditions") or []}
        wanted = [known.get(kind) or {} for kind in ("Accepted", "ResolvedRefs")]
        seen = all(int(each.get("observedGeneration") or 0) >= generation for each in wanted)
        odd = next((each for each in wanted if each.get("status") == "False"), None)
        gateway = str((parent.get("parentRef") or {}).get("name") or "")
        why = ""
        if seen and odd:
            who = f"gateway {gateway} ({parent.get('controllerName')})"
            told = f"{who} says {odd.get('type')} is false, {odd.get('reason')}: {odd.get('message')}"
            why = shortened(one_line(told))
        yield seen, why


WEIGHTS_IGNORED: Mapping[str, str] = {
    # volcano-sh/kthena#1468 and #1473, of August 2026; #1471 mends it.
    "volcano.sh/kthena-router": "before kthena#1471 it sends everybody to the first pool of a rule",
    # envoyproxy/ai-gateway 1.1.0, internal/extensionserver/post_route_modify.go; plain Envoy Gateway refuses pools.
    "gateway.envoyproxy.io/gatewayclass-controller": "Envoy AI Gateway takes one pool a rule, and fails at two (1.1.0)",
}
"""By `controllerName`: gateways that say that they take a rule with two InferencePools, and do not heed its weights."""


def has_pools(route: Json | None) -> bool:
    """Whether it leads users to InferencePools."""
    rules = at(route, "spec", "rules", default=[])
    return any(each.get("kind") == INFERENCE_POOLS.kind for rule in rules for each in rule.get("backendRefs") or [])


def doubts(route: Json | None) -> Iterator[str]:
    """What is known against its gateways, although they say nothing against it; of pools alone."""
    for parent in at(route, "status", "parents", default=[]) if has_pools(route) else ():
        if why := WEIGHTS_IGNORED.get(name := str(parent.get("controllerName"))):
            gateway = (parent.get("parentRef") or {}).get("name")
            yield f"gateway {gateway} ({name}): {why}; a delivery ends when another share arrives than the weight says"


def misfits(snapshot: PeersSnapshot) -> Iterator[str]:
    """Why users cannot be moved as the spec says, each with what makes it right."""
    reference, route = snapshot.place.reference, snapshot.route
    if route is None:
        yield f"there is no HTTPRoute {reference.route}"
        return
    refs = [each for rule in route["spec"].get("rules") or [] for each in rule.get("backendRefs") or []]
    for peer in reference.peers.values():
        wanted = (INFERENCE_POOLS.group, "InferencePool") if peer.kind is BackendKind.POOL else ("", "Service")
        its = [each for each in refs if each.get("name") == peer.backend]
        if not its:
            yield f"HTTPRoute {reference.route} has no backend {peer.backend}"
        for each in its:
            if wanted != (found := (str(each.get("group") or ""), str(each.get("kind") or "Service"))):
                is_one = "/".join(filter(None, found))
                yield f"backend {peer.backend} of HTTPRoute {reference.route} is {is_one}, not {peer.kind}"
    said = list(answers(route))
    if not said:
        yield f"no gateway has taken HTTPRoute {reference.route}: its status names no parent"
    yield from (each for _, each in said if each)
    if not snapshot.notes.stable and snapshot.weight:
        yield (
            f"{100 - snapshot.weight} % of users are on {snapshot.stable} and {snapshot.weight} % on "
            f"{snapshot.other}: at the start one backend has weight 100 and the other 0"
        )
    if problem := snapshot.problems[snapshot.stable]:
        yield f"{snapshot.stable} has the users and nothing that is ready: {problem}"


def field_of(thing: Json, pointer: str) -> Any:
    """What stands there (RFC 6901); None where nothing does."""
    return resolve_pointer(thing, pointer, None)


def changes(workload: Json, theirs: WorkloadSpec, engine: Engine, replicas: int) -> list[Json]:
    """JSON patch operations by which it serves that engine; none where it does.

    `replicas` is what it gets where it has none.

    Raises:
        NotPossible: a field is not there: nothing is added to an object of others.
    """
    wanted: dict[str, object] = {pointer: filled(text, engine) for pointer, text in theirs.set.items()}
    if not field_of(workload, theirs.replicas):
        wanted[theirs.replicas] = replicas
    if missing := [pointer for pointer in wanted if field_of(workload, pointer) is None]:
        raise NotPossible(
            f"{theirs.kind} {theirs.name} has no {', '.join(missing)}",
            hint="`workload.set` and `workload.replicas` name fields that it has",
        )
    return [
        {"op": "replace", "path": pointer, "value": value}
        for pointer, value in wanted.items()
        if field_of(workload, pointer) != value
    ]


def undone(workload: Json, operations: list[Json]) -> list[Json]:
    """The operations that give the fields what they had in `workload`."""
    return [{**each, "value": field_of(workload, each["path"])} for each in operations]


def what_is_missing(workload: Json, theirs: WorkloadSpec) -> Iterator[str]:
    """Why it does not serve what it is asked for yet; nothing once it does, with all its engines."""
    status, name = workload.get("status") or {}, f"{theirs.kind} {theirs.name}"
    if int(status.get("observedGeneration") or 0) < int(workload["metadata"].get("generation") or 0):
        silent = status and status.get("observedGeneration") is None
        yield (
            f"{name} has no status.observedGeneration, by which its controller says what it has seen: a newer one does"
            if silent
            else f"the controller of {name} has not seen what was asked"
        )
    if theirs.kind is WorkloadKind.LLM_INFERENCE_SERVICE:
        ready = condition(workload, "Ready") or {}
        if ready.get("status") != "True":
            yield f"{name}: {ready.get('reason') or 'not ready'}: {ready.get('message') or 'it says no more'}"
        return
    wanted = int(field_of(workload, theirs.replicas) or 0)
    for key in ("updatedReplicas", "readyReplicas"):
        if int(status.get(key) or 0) < wanted or not wanted:
            yield f"{name}: {int(status.get(key) or 0)} of {wanted} engines are {key.removesuffix('Replicas')}"
    # Those of the version before are still there.
    if int(status.get("replicas") or 0) > wanted:
        yield f"{name}: {status['replicas']} engines, and {wanted} are wanted"
