"""The port `Fleet` for engines over several nodes: LeaderWorkerSets, and users that are moved by ourselves.

The rules are those of `BaseFleet`. Each write is a compare-and-set onto what was read, by the one whose Lease it is;
nothing is kept between operations, so that a delivery that died resumes by repeating its operation.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from rollouts.arms import Arms
from rollouts.base import BaseFleet, RegionReading, RegionSplit
from rollouts.cluster.capacity import EngineDemand, require_room
from rollouts.cluster.carrier import Carrier, Fence
from rollouts.cluster.desired_objects import ApplyTransaction
from rollouts.cluster.model import RegionConfig, Render
from rollouts.cluster.ownership import foreign_objects, refuse_foreign
from rollouts.cluster.routes import RouteKind
from rollouts.cluster.traffic_verification import RequestCounter, TrafficVerifier
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotFound, NotOurs, NotPossible
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import LEADER_WORKER_SETS, SERVICES
from rollouts.kube.retry import RetryPolicy, deadline, urgent
from rollouts.manifests.conventions import (
    LOST_USERS,
    PREVIOUS,
    PREVIOUS_UNTIL,
    SET_NAME,
    UNATTENDED,
    canary_service,
    stable_service,
)
from rollouts.model import CarrierHeartbeat, Engine, ForeignObject, RegionState, require_percent
from rollouts.multinode.model import EngineGroups, set_of
from rollouts.multinode.observer import GroupsObserver, moving_users
from rollouts.multinode.snapshot import GroupsSnapshot
from rollouts.multinode.state import region_state
from rollouts.multinode.transition import NameStable, SetWeights, Step, next_step
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.model import Json
from tidegate.core.names import CANARY, ROLE, STABLE, VERSION

log = logging.getLogger(__name__)

MOST_WRITES = 12
"""Of one operation on users; the longest way has five."""


class LeaderWorkerSetFleet(BaseFleet):
    """A `Fleet` of one LeaderWorkerSet for each version that is up."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: Cluster,
        routes: RouteKind,
        render: Render,
        clock: Clock,
        served: RequestCounter | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """`render` makes what the region needs for an engine, its LeaderWorkerSet last; without `served` traffic is not
        verified. Without a `carrier` the fleet is read-only.
        """
        super().__init__(config.region, entry=config.entry, clock=clock)
        self._config = config
        self._cluster = cluster
        self._routes = routes
        self._render = render
        self._fence = Fence(config, cluster, moving_users(config, routes), clock, carrier)
        self._observer = GroupsObserver(config, cluster, routes, clock, self._fence)
        self._verifier = TrafficVerifier(config.region, served, clock)
        self._retries = RetryPolicy(clock, seconds=config.retry_seconds, within=config.operation_seconds)
        self._coming = ""
        """The version that is being deployed: its set has no role yet, and is nobody's to take away."""

    async def observe(self) -> RegionState:
        async def seen() -> RegionState:
            await self._fence.succeed()
            return await self._seen()

        return await self._retries.run(seen)

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """Objects of others where this delivery's would be, all kinds of them."""
        # Which engine it is changes the name of its set alone, and that is new each time.
        manifests = self._render(Engine(version="0", digest="", model=self._config.name, image="none"))
        return await self._retries.run(lambda: foreign_objects(self._cluster, manifests, self._config.name))

    async def carried(self) -> CarrierHeartbeat | None:
        """Who holds the region's Lease; None when nobody does."""
        return await self._retries.run(self._fence.holder)

    async def engine_of(self, version: str) -> Engine | None:
        """The engine of a version that is up here; None when none is."""
        snapshot = await self._retries.run(self._observer.observe)
        found = snapshot.of_version(version)
        if found is None:
            return None
        return Engine(
            version=version, digest=found.digest, model=self._config.name, image=found.image, launch=found.launch
        )

    async def deploy(self, engine: Engine) -> RegionState:
        return await self._retries.run(lambda: self._deploy(engine))

    async def mirror(self, percent: int) -> RegionState:
        return await self._retries.run(lambda: self._mirror(percent))

    async def shift(self, weight: int) -> RegionState:
        return await self._retries.run(lambda: self._shift(weight))

    async def promote(self) -> RegionState:
        return await self._retries.run(self._promote)

    async def rollback(self, to: str | None) -> RegionState:
        self._start.cancel()
        with urgent(), deadline(self._clock, self._config.operation_seconds):
            # Decided once: a trial that is promoted while this is retried must not become where it goes back to.
            stable = (await self._retries.run(self._observer.observe)).placement.split.stable
            wanted = to or stable
            return await self._retries.run(lambda: self._rollback(wanted))

    async def renew(self) -> None:
        """Say in the region that its delivery is carried, and look after its users; nothing where it has not begun.

        Raises:
            FleetError: the API server does not answer, or does not let us.
        """
        await self._fence.renew()
        if self._fence.inside:
            await self.relieve()

    async def relieve(self) -> None:
        """Take users from a canary of which no engine is ready: no controller in the region does it for us."""
        snapshot = await self._observer.observe()
        stable, trial, split = snapshot.stable, snapshot.trial, snapshot.placement.split
        if split.weight and stable and stable.ready and not (trial and trial.ready):
            log.warning("%s: no engine of the canary is ready: its users go to the stable", self.region)
            await self._write(SetWeights(0, 0), snapshot)
            noted = {"metadata": {"annotations": {LOST_USERS: str(split.weight)}}}
            await self._cluster.patch(SERVICES, canary_service(self._config.name), noted)

    async def leave(self) -> None:
        """End this process' part: the Lease is released. Never raises."""
        await self._fence.leave()

    # What `BaseFleet` builds on.

    async def read(self) -> RegionReading:
        snapshot = await self._observer.observe()
        return snapshot.reading(stable_url=self._config.stable_url, canary_url=self._config.canary_url)

    async def start(self, engine: Engine) -> None:
        transaction = ApplyTransaction(self._config, self._cluster, self._clock, fence=self._fence)
        try:
            await self._create(engine, transaction)
            await self._observer.until_up(engine.version, within=self._config.start_seconds)
        except TidegateError as error:
            if not transaction.committed and await self._is_made(engine.version):
                # Its answer was lost alone: what it needs stays.
                transaction.commit()
            await transaction.put_back(error)
            if isinstance(error, EngineDidNotStart):
                await self._give_up(engine.version, error)
            raise

    async def route(self, split: RegionSplit) -> None:
        for _ in range(MOST_WRITES):
            snapshot = await self._observer.observe()
            refuse_foreign(self.region, *snapshot.foreign_objects)
            if (step := next_step(snapshot.placement, split)) is None:
                return
            await self._write(step, snapshot)
        raise NotConfirmed(
            f"{self.region}: what is written to its Services and route does not stay",
            hint="find out who writes them back: `kubectl get --show-managed-fields`",
        )

    async def stop(self, version: str) -> None:
        if version == self._coming:
            return
        for each in (await self._observer.observe()).without_role(version):
            await self._delete(each)

    async def _seen(self) -> RegionState:
        return region_state(self._config, await self._observer.observe())

    # The operations.

    async def _deploy(self, engine: Engine) -> RegionState:
        *others, groups = self._render(engine)
        if not self._fence.inside:
            # Entering writes too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, others, self._config.name))
        snapshot = await self._entered()
        _refuse_other_engine(snapshot, engine)
        if snapshot.of_version(engine.version) is None:
            await self._require_room(snapshot, groups, engine.version)
        self._coming = engine.version
        try:
            return await super().deploy(engine)
        finally:
            self._coming = ""

    async def _mirror(self, percent: int) -> RegionState:
        require_percent(percent)
        snapshot = await self._entered()
        before = await self._verifier.counts(_both(snapshot) if percent else None)
        state = await super().mirror(percent)
        await self._verifier.check_mirror(percent, before)
        return state

    async def _shift(self, weight: int) -> RegionState:
        require_percent(weight)
        snapshot = await self._entered()
        state = await super().shift(weight)
        await self._verifier.check_share(weight, await self._verifier.counts(_both(snapshot) if weight else None))
        return state

    async def _promote(self) -> RegionState:
        snapshot = await self._entered()
        if trial := snapshot.trial:
            # All users come at once.
            await self._observer.until_up(trial.version, within=self._config.start_seconds)
        state = await super().promote()
        if self._config.warm_versions is None and state.previous:
            state = await self._change(lambda arms: Arms(stable=arms.stable))
        return state

    async def _rollback(self, to: str | None) -> RegionState:
        if self._fence.insists:
            await self._users_first(to)
            _refuse_others(self._config, await self._observer.observe())
        else:
            await self._entered()
        return await super().rollback(to)

    async def _users_first(self, to: str | None) -> None:
        """Anyone who insists on going back sends users back while the Lease is taken, and does not need it for that."""
        said: list[object] = [*await asyncio.gather(self._leave_canary(to), self._fence.take(), return_exceptions=True)]
        # Marking comes after: it is a write to the very objects that users are moved by, if they are ours.
        if not any(isinstance(failed, NotOurs) for failed in said):
            said += await asyncio.gather(self._fence.enter(), return_exceptions=True)
        for failed in said:
            if isinstance(failed, FleetError | NotOurs):
                # What stands in the way of going back is met again, and said, by what follows.
                log.warning("%s: going back all the same: %s", self.region, failed)
            elif isinstance(failed, BaseException):
                raise failed

    async def _leave_canary(self, to: str | None) -> None:
        snapshot = await self._observer.observe()
        refuse_foreign(self.region, *snapshot.foreign_objects)
        split = snapshot.placement.split
        if split.stable == to and (split.weight or split.mirror):
            await self._write(SetWeights(0, 0), snapshot)

    async def _entered(self) -> GroupsSnapshot:
        """The region once it is ours to write to, whose it is being looked at first.

        Raises:
            NotOurs: what splits its users is somebody else's.
            NotPossible: a Rollout moves its users.
            NotTheCarrier: somebody else carries the delivery here.
        """
        if not self._fence.inside:
            _refuse_others(self._config, await self._observer.observe())
            await self._fence.enter()
        snapshot = await self._observer.observe()
        _refuse_others(self._config, snapshot)
        settled = snapshot.placement.split.model_copy(update={"weight": 0, "mirror": 0})
        if settled.canary or next_step(snapshot.placement, settled) is None:
            return snapshot
        # The one who promoted died before it was done; all users are on one version.
        await self.route(settled)
        return await self._observer.observe()

    async def _is_made(self, version: str) -> bool:
        try:
            return (await self._observer.observe()).of_version(version) is not None
        except FleetError:
            return False

    async def _create(self, engine: Engine, transaction: ApplyTransaction) -> None:
        """Everything that a version needs, its LeaderWorkerSet last; nothing where it is there."""
        *others, groups = self._render(engine)
        snapshot = await self._observer.observe()
        is_made = snapshot.of_version(engine.version) is not None
        if is_made and snapshot.has_ways_to_users:
            return
        await transaction.apply(others)
        for kind in (SERVICES, self._routes.resource):
            # What is new here has no number yet.
            await self._fence.mark(kind)
        if not is_made:
            await self._cluster.create(LEADER_WORKER_SETS, _named_apart(groups, snapshot))
        transaction.commit()
        if snapshot.unattended:
            # What became of a trial before says nothing of this one.
            forgotten = {"metadata": {"annotations": {UNATTENDED: None}}}
            await self._cluster.patch(SERVICES, stable_service(self._config.name), forgotten)
        log.info("%s: version %s was asked for", self.region, engine.version)

    async def _give_up(self, version: str, why: TidegateError) -> None:
        """No user met the version that did not start. Must not hide why it did not."""
        try:
            for each in (await self._observer.observe()).without_role(version):
                await self._delete(each)
        except FleetError as error:
            log.warning("%s: version %s is left (%s): %s", self.region, version, why, error)

    async def _delete(self, which: EngineGroups) -> None:
        try:
            await self._cluster.delete(LEADER_WORKER_SETS, which.name)
        except NotFound:
            return
        log.info("%s: LeaderWorkerSet %s of version %s goes", self.region, which.name, which.version)

    async def _require_room(self, snapshot: GroupsSnapshot, groups: Json, version: str) -> None:
        spec = groups["spec"]
        pod = {"metadata": {"name": version}, "spec": spec["leaderWorkerTemplate"]["leaderTemplate"]["spec"]}
        replicas = int(spec["replicas"])
        need = EngineDemand(first=replicas, most=replicas, pods=int(spec["leaderWorkerTemplate"]["size"]))
        ours = {each["metadata"]["name"] for each in snapshot.sets}
        stays = {snapshot.stable.name} if snapshot.stable else set()

        def goes(pod: Json) -> bool:
            """The trial before and the version that is kept warm make room, and what was deleted is on its way."""
            return bool(pod["metadata"].get("deletionTimestamp")) or set_of(pod) in ours - stays

        await require_room(self._cluster, self._config, pod, need, version, goes=goes)

    async def _write(self, step: Step, snapshot: GroupsSnapshot) -> None:
        """One step, onto what was read."""
        if isinstance(step, SetWeights):
            await self._spread(step, snapshot)
        elif isinstance(step, NameStable):
            await self._name(snapshot.stable_service, STABLE, step.version, snapshot, self._noted(step, snapshot))
        else:
            leads_to = step.version or snapshot.placement.split.stable or ""
            role = CANARY if step.version else None
            await self._name(snapshot.canary_service, role, leads_to, snapshot, {LOST_USERS: None})

    def _noted(self, step: NameStable, snapshot: GroupsSnapshot) -> Json:
        until = snapshot.at + timedelta(seconds=self._config.keep_seconds)
        stamp = until.strftime("%Y-%m-%dT%H:%M:%SZ") if step.previous else None
        return {PREVIOUS: step.previous, PREVIOUS_UNTIL: stamp}

    async def _name(
        self, service: Json | None, role: str | None, version: str, snapshot: GroupsSnapshot, annotations: Json
    ) -> None:
        """Let a Service lead to a version, and to no other.

        Raises:
            NotPossible: there is no such Service, or no engine of the version.
        """
        which = snapshot.of_version(version)
        if service is None or which is None:
            missing = f"engine of version {version}" if service else f"Service of the {role or CANARY}"
            raise NotPossible(f"{self.region}: there is no {missing}", hint="`tidegate status` shows what is there")
        metadata = {
            "resourceVersion": service["metadata"]["resourceVersion"],
            "labels": {ROLE: role},
            "annotations": annotations,
        }
        selector = {SET_NAME: which.name, VERSION: version}
        body = {"metadata": metadata, "spec": {"selector": selector}}
        await self._cluster.patch(SERVICES, service["metadata"]["name"], body)

    async def _spread(self, step: SetWeights, snapshot: GroupsSnapshot) -> None:
        if snapshot.route is None:
            raise NotPossible(
                f"{self._routes.resource.kind} {self._config.route} is gone: users cannot be moved",
                hint="apply it again: the set-up part of `tidegate rollout render`",
            )
        name = self._config.name
        weighted = self._routes.weighted(snapshot.route, name, step.weight)
        await self._cluster.replace(self._routes.resource, self._routes.mirrored(weighted, name, step.mirror))


def _refuse_others(config: RegionConfig, snapshot: GroupsSnapshot) -> None:
    refuse_foreign(config.region, *snapshot.foreign_objects)
    if snapshot.rollout_serves:
        services = f"{stable_service(config.name)} and {canary_service(config.name)}"
        raise NotPossible(
            f"{config.region}: a Rollout moves the Services {services}",
            hint="give the delivery with `fleet.multi_node` another `metadata.name`, and move users over to it",
        )


def _refuse_other_engine(snapshot: GroupsSnapshot, engine: Engine) -> None:
    """Be sure that what is here under that name is what is asked for.

    Raises:
        NotPossible: it runs another image, or is started in another way.
    """
    here = snapshot.of_version(engine.version)
    if here and here.image != engine.image:
        raise NotPossible(
            f"version {engine.version} is here already, from another image: {here.image}",
            hint="roll it back first, or register a new version",
        )
    if here and here.launch != engine.launch:
        raise NotPossible(
            f"version {engine.version} is here already, started with other arguments",
            hint="take it back first: `tidegate rollback`",
        )


def _both(snapshot: GroupsSnapshot) -> tuple[str, str] | None:
    split = snapshot.placement.split
    return (split.stable, split.canary) if split.stable and split.canary else None


def _named_apart(groups: Json, snapshot: GroupsSnapshot) -> Json:
    """The set under a name that is free: the same engine may be here still, on its way out."""
    taken = {each["metadata"]["name"] for each in snapshot.sets}
    name = str(groups["metadata"]["name"])
    free = next(each for each in (name, *(f"{name}-{number}" for number in range(2, 99))) if each not in taken)
    return {**groups, "metadata": {**groups["metadata"], "name": free}}
