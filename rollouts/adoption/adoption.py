"""Adopts the Rollout of one region, or gives it back: one write after the other, each onto what was just read.

Nothing is remembered in between: what is left to do is read from the cluster before every write. What is cut off goes
on when it is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from rollouts.adoption.giveback import giveback
from rollouts.adoption.model import AdoptedVersion, Place, Verb, Write, before
from rollouts.adoption.refusals import adopted_version, refusals
from rollouts.adoption.sending import WriteSender
from rollouts.adoption.takeover import marked, takeover
from rollouts.argo.actions import RolloutClient
from rollouts.argo.compare_and_set import Precondition
from rollouts.argo.model import Rollout, controlled_by, hash_of
from rollouts.argo.state import waiting_for_controller
from rollouts.cluster.carrier import Carrier, Fence
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.observer import RegionObserver, moving_users
from rollouts.cluster.ownership import live_object, live_objects
from rollouts.cluster.routes import RouteKind
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import CannotAdopt, Forbidden, Invalid, NotConfirmed, NotPossible
from rollouts.kube.model import Resource
from rollouts.kube.objects import at, labels_of, owned_by, said
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import LEASES, NETWORK_POLICIES, PODS, REPLICA_SETS, ROLLOUTS, SERVICES
from rollouts.kube.retry import RetryPolicy
from rollouts.manifests.conventions import lease
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

Tell = Callable[[Write], None]
"""Hears of each write before it is sent."""

_ADMISSION = (
    "the admission part of `tidegate rollout render` takes pods of tidegate alone: apply it once a delivery has "
    "replaced theirs"
)

POLL_SECONDS = 1.0
SETTLE_SECONDS = 120.0
"""For a controller that has no pod to start."""


class Adoption:
    """Takes over what serves in one region, and gives it back."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: Cluster,
        routes: RouteKind,
        wanted: Sequence[Json],
        clock: Clock,
        carrier: Carrier,
    ) -> None:
        """`wanted` are the objects that a delivery applies there, the Rollout last."""
        self.region = config.region
        self._config = config
        self._cluster = cluster
        self._wanted = wanted
        self._clock = clock
        self._fence = Fence(config, cluster, moving_users(config, routes), clock, carrier)
        self._observer = RegionObserver(config, cluster, routes, clock, self._fence)
        self._rollouts = RolloutClient(cluster, clock, allows=self._fence.allows)
        self._sender = WriteSender(config.region, cluster)
        self._sent: tuple[Write, float] | None = None
        """What was sent last, and when."""
        self._retries = RetryPolicy(clock, seconds=config.retry_seconds, within=config.operation_seconds)

    async def look(self) -> Place:
        """What is there now; writes nothing."""
        lives = await live_objects(self._cluster, self._wanted)
        sets, pods, services, policies = await asyncio.gather(
            *(self._all(kind) for kind in (REPLICA_SETS, PODS, SERVICES, NETWORK_POLICIES))
        )
        own = controlled_by(lives[-1], sets) if lives[-1] else []
        return Place(
            wanted=self._wanted,
            lives=lives,
            replica_sets=own,
            pods=[pod for pod in pods if any(owned_by(pod, each) for each in own)],
            services=services,
            lease=await live_object(self._cluster, _lease(self._config, self._cluster)),
            policies=[each for each in policies if labels_of(each).get(DELIVERY) == self._config.name],
        )

    async def require(self, who: AdoptedVersion) -> Place:
        """What is there, where nothing is in the way; writes nothing.

        Raises:
            CannotAdopt: something is, all of which is told; or the cluster's policies do not take such pods.
        """
        place = await self._retries.run(self.look)
        require_adoptable(place, who)
        if not _is_ours(place):
            await self._require_admitted(place, who)
        return place

    async def adopt(self, who: AdoptedVersion, tell: Tell) -> bool:
        """Take all of it over, or what is left of it; false where it is adopted already.

        Raises:
            CannotAdopt: something is in the way; what was written so far takes nothing from anybody.
            WouldTakeDown: a Service would lose pods; the write was not sent.
            FleetError: the API server does not answer, or does not let us.
        """
        if _is_ours(await self.require(who)):
            return False

        def left(place: Place) -> Iterable[Write]:
            require_adoptable(place, who)
            return takeover(place, who)

        await self._carry_out(left, tell)
        settled = await self._until(lambda now: now.argo.in_progress or _serves(now, who.version), SETTLE_SECONDS)
        if settled.argo.in_progress:
            await self._take_back(await self.look(), "its controller began to start other pods for the same template")
        return True

    def planned_release(self, place: Place) -> tuple[Write, ...]:
        """What `release` would write.

        Raises:
            CannotAdopt: a trial is under way, or there is nothing to give back.
        """
        require_releasable(place, self._config.name)
        return (*self._own_pods_writes(place), *giveback(place, self._config.name))

    async def release(self, tell: Tell) -> None:
        """Give all of it back, or what is left of it.

        Raises:
            CannotAdopt: a trial is under way, or there is nothing that was adopted.
            NotTheCarrier: somebody carries a delivery there.
            FleetError: as `adopt`.
        """
        place = await self._retries.run(self.look)
        require_releasable(place, self._config.name)
        if _is_ours(place):
            await self._retries.run(self._fence.enter)
            await self._retries.run(lambda: self._own_pods(tell))
        await self._carry_out(lambda place: giveback(place, self._config.name), tell, waits=self._waits)

    async def renew(self) -> None:
        """Say that we live: nobody else delivers meanwhile. Nothing once the Lease is gone."""
        if not (self._sent and self._sent[0].live["kind"] == LEASES.kind):
            await self._fence.renew()

    async def leave(self) -> None:
        """Release the Lease, if there is one. Never raises."""
        await self._fence.leave()

    async def _require_admitted(self, place: Place, who: AdoptedVersion) -> None:
        """Their pods, once they have the delivery's labels: policies may hold by these, and pods come and go."""
        assert place.rollout is not None, "what can be adopted is there"
        template = marked(place.rollout["spec"]["template"], who)
        metadata = {**template["metadata"], "name": f"{who.delivery}-adopted", "namespace": self._cluster.namespace}
        pod = {**template, "apiVersion": PODS.api_version, "kind": PODS.kind, "metadata": metadata}
        try:
            await self._cluster.apply(pod, dry_run=True)
        except (Forbidden, Invalid) as error:
            told = f"{who.region}: a pod of theirs with the delivery's labels would be refused"
            raise CannotAdopt(f"{told}: {error.message}", hint=_ADMISSION) from error

    async def _carry_out(
        self,
        left: Callable[[Place], Iterable[Write]],
        tell: Tell,
        waits: Callable[[Place, Write], Awaitable[bool]] | None = None,
    ) -> None:
        told: list[tuple[str, str]] = []

        async def one() -> bool:
            place = await self.look()
            write = next(iter(left(place)), None)
            if write is None:
                return False
            if waits and await waits(place, write):
                await self._clock.sleep(POLL_SECONDS)
                return True
            if told[-1:] != [(write.subject, write.what)]:
                told.append((write.subject, write.what))
                tell(write)
            await self._sender.send(write)
            self._sent = (write, self._clock.monotonic())
            return True

        while await self._retries.run(one):
            pass

    def _own_pods_writes(self, place: Place) -> tuple[Write, ...]:
        """What makes their own pods serve again; none where they do, or are on their way.

        Raises:
            CannotAdopt: a trial is under way.
        """
        live = place.rollout
        noted = before(live) if live else None
        if live is None or noted is None:
            return ()
        argo, wanted = Rollout(live), str(noted["hash"])
        if argo.in_progress and argo.pod_hash != wanted:
            raise CannotAdopt(f"a trial is under way in Rollout {argo.name}", hint="take it back: `tidegate rollback`")
        if argo.pod_hash == wanted:
            return ()
        what = f"starts its own pods again, as version {noted['version']}; users move once all are ready"
        return (Write(said(live), what, Verb.REPLACE, live, _with_their_template(live, noted, self._config)),)

    async def _own_pods(self, tell: Tell) -> None:
        """Their own pods serve all users, of the very template that they had."""
        place = await self.look()
        noted = before(place.rollout) if place.rollout else None
        if noted is None:
            return
        for write in self._own_pods_writes(place):
            tell(write)
            await self._sender.send(write)
        wanted, version = str(noted["hash"]), str(noted["version"])
        now = await self._until(lambda now: now.argo.pod_hash == wanted and _is_up(now), self._config.start_seconds)
        if not now.is_settled:
            await self._rollouts.promote_full(now.argo.name, Precondition(pod_hash=wanted))
            await self._until(lambda now: _serves(now, version), self._config.start_seconds)

    async def _waits(self, place: Place, write: Write) -> bool:
        """Whether a write has to wait for the Rollout that was given back: at rest, with no pods but its own.

        Raises:
            NotPossible: its controller takes the template for a new one; it is taken over again.
            NotConfirmed: it does not come to rest.
        """
        if write.live["kind"] == ROLLOUTS.kind or place.rollout is None:
            return False
        argo = Rollout(place.rollout)
        observed = not waiting_for_controller(place.rollout)
        if observed and argo.in_progress and self._sent and self._sent[0].live["kind"] == ROLLOUTS.kind:
            await self._restore(place, self._sent[0])
        others = sum(hash_of(pod) != argo.stable_hash for pod in place.pods)
        # A Service that Argo Rollouts narrows to the stable's pods selects none of the others.
        narrowed = bool((argo.canary or {}).get("stableService"))
        if observed and not argo.in_progress and (narrowed or not others):
            return False
        if self._sent and self._clock.monotonic() - self._sent[1] > self._config.start_seconds:
            told = f"Rollout {argo.name} does not come to rest; {others} pods are of other versions"
            raise NotConfirmed(
                told, hint=f"`kubectl argo rollouts get rollout {argo.name}` says why; then release it again"
            )
        return True

    async def _restore(self, place: Place, write: Write) -> None:
        assert place.rollout is not None, "a Rollout that begins a revision is there"
        metadata = {**place.rollout["metadata"]}
        for part in ("labels", "annotations"):
            metadata[part] = write.live["metadata"].get(part) or {}
        await self._cluster.replace(ROLLOUTS, {**place.rollout, "spec": write.live["spec"], "metadata": metadata})
        told = f"{write.subject} would start other pods for the template that it had: it stays adopted"
        raise NotPossible(
            told,
            hint="another controller named its ReplicaSet: `kubectl argo rollouts get rollout` shows both",
        )

    async def _take_back(self, place: Place, why: str) -> None:
        """Give the Rollout alone back at once.

        Raises:
            NotPossible: with the reason.
        """
        for write in giveback(place, self._config.name):
            if write.live["kind"] == ROLLOUTS.kind:
                await self._sender.send(write)
        raise NotPossible(
            f"Rollout {self._config.name}: {why}; it was given back",
            hint="`tidegate rollout release` gives back the rest; let it roll once by its own steps, then adopt it",
        )

    async def _until(self, holds: Callable[[RegionSnapshot], bool], within: float) -> RegionSnapshot:
        return await self._observer.until(
            lambda now: now.observed and holds(now), "its own pods", within=within, going_back=True
        )

    async def _all(self, kind: Resource) -> Sequence[Json]:
        return (await self._cluster.list(kind)).items


def _lease(config: RegionConfig, cluster: Cluster) -> Json:
    metadata = {"name": lease(config.name), "namespace": cluster.namespace}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}


def require_adoptable(place: Place, who: AdoptedVersion) -> None:
    """Go on where nothing is in the way.

    Raises:
        CannotAdopt: with all of it.
    """
    if place.rollout is not None and (noted := before(place.rollout)):
        if noted["version"] != who.version:
            raise CannotAdopt(
                f"Rollout {who.delivery} is adopted already, as version {noted['version']}",
                hint="give it back first: `tidegate rollout release`",
            )
        return
    begun = adopted_version(place)
    found = refusals(place, who)
    if begun not in {"", who.version}:
        found = (f"its pods have the labels of version {begun} already: go on with --version {begun}", *found)
    if found:
        raise CannotAdopt(f"{who.region}: {'; '.join(found)}", hint="nothing more was written")


def require_releasable(place: Place, delivery: str) -> None:
    """Go on where there is something to give back.

    Raises:
        CannotAdopt: there is nothing.
    """
    rollout = place.rollout
    if rollout is not None and labels_of(rollout).get(DELIVERY) == delivery and not before(rollout):
        raise CannotAdopt(
            f"Rollout {delivery} was made by tidegate, and is nobody's to give back to",
            hint="`kubectl delete` what `tidegate rollout render` prints",
        )
    if next(iter(giveback(place, delivery)), None) is None:
        raise CannotAdopt(
            f"nothing of {delivery} was adopted here", hint="`tidegate rollout adopt --dry-run` says what would be"
        )


def _is_ours(place: Place) -> bool:
    return place.rollout is not None and before(place.rollout) is not None


def _serves(now: RegionSnapshot, version: str) -> bool:
    return now.is_settled and now.stable is not None and now.stable.version == version


def _is_up(now: RegionSnapshot) -> bool:
    return now.is_settled or now.is_ready_for_users


def _with_their_template(live: Json, noted: Json, config: RegionConfig) -> Json:
    """Our Rollout that asks for their pods, by its steps: `rollbackWindow` would skip them."""
    who = AdoptedVersion(
        delivery=config.name, region=config.region, version=str(noted["version"]), digest=str(noted["digest"])
    )
    spec = {key: value for key, value in live["spec"].items() if key != "rollbackWindow"}
    return {**live, "spec": {**spec, "template": marked(at(noted, "spec", "template"), who)}}
