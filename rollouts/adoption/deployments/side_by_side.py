"""Adopts what serves in one region: a Rollout as it is, a Deployment by a Rollout next to it; and gives it back.

The order is pods, labels, Services, route, Rollout, and back again the same way. Nothing is remembered in between: the
Rollout says which Deployment it was made for, the Deployment how many pods it gets back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto

from rollouts.adoption.adoption import POLL_SECONDS, Adoption, Tell, require_releasable, trial_under_way
from rollouts.adoption.deployments.handover import Scale, kept, next_scale
from rollouts.adoption.deployments.model import DeploymentPlace, noting, pods_of
from rollouts.adoption.deployments.progress import PodProgress
from rollouts.adoption.deployments.refusals import deployment_refusals, room_refusal
from rollouts.adoption.deployments.writes import ended, expected_place, made, planned, planned_back, scaled
from rollouts.adoption.giveback import giveback
from rollouts.adoption.model import AdoptedVersion, Write, made_for
from rollouts.adoption.refusals import stable_set
from rollouts.adoption.sending import WriteSender
from rollouts.argo.model import Rollout
from rollouts.argo.state import waiting_for_controller
from rollouts.cluster.capacity import headroom
from rollouts.cluster.model import RegionConfig
from rollouts.errors import CannotAdopt, Forbidden, NotFound
from rollouts.kube.model import Resource
from rollouts.kube.objects import at, name_of
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import (
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    LEASES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SCALED_OBJECTS,
)
from rollouts.kube.retry import RetryPolicy
from tidegate.core.clock import Clock
from tidegate.core.model import Json

log = logging.getLogger(__name__)

Next = Callable[[DeploymentPlace], Write | None]
"""The next write; None where nothing is to be written now."""


Holds = Callable[[DeploymentPlace], bool]


class Outcome(Enum):
    """What one look came to."""

    DONE = auto()
    GOES_ON = auto()
    WAITS = auto()
    """For pods."""


class SideBySideAdoption:
    """Takes over what serves in one region, and gives it back."""

    def __init__(
        self,
        config: RegionConfig,
        adoption: Adoption,
        *,
        cluster: Cluster,
        clock: Clock,
        drain_seconds: float,
        deployment: str = "",
        surge: int | None = None,
    ) -> None:
        """Take over `deployment`, or what has the delivery's name where it is empty.

        Pods of a Deployment that no user is led to any more have `drain_seconds` for answers that are on their way.
        `surge` is how many pods beyond those that serve there may be at once; None for all of them again.
        """
        self.region = config.region
        self._config = config
        self._adoption = adoption
        self._cluster = cluster
        self._clock = clock
        self._drain = drain_seconds
        self._deployment = deployment
        self._surge = surge
        self._sender = WriteSender(config.region, cluster)
        self._retries = RetryPolicy(clock, seconds=config.retry_seconds)
        self._is_over = False
        """Whether the Lease is deleted."""

    async def look(self) -> DeploymentPlace:
        """What is there now; writes nothing.

        Raises:
            CannotAdopt: another Deployment is named than the Rollout was made for.
        """
        place = await self._adoption.look()
        deployment = self._chosen(place.rollout, await self._all(DEPLOYMENTS))
        if deployment is None:
            return DeploymentPlace(place, None)
        sets, pods, autoscalers, scaled_objects, budgets = await asyncio.gather(
            *(
                self._all(kind)
                for kind in (REPLICA_SETS, PODS, HORIZONTAL_POD_AUTOSCALERS, SCALED_OBJECTS, POD_DISRUPTION_BUDGETS)
            )
        )
        scalers = [each for each in (*scaled_objects, *autoscalers) if _scales(each, deployment)]
        return DeploymentPlace(place, deployment, pods_of(deployment, sets, pods), scalers, budgets)

    async def require(self, who: AdoptedVersion) -> DeploymentPlace:
        """What is there, where nothing is in the way; writes nothing.

        Raises:
            CannotAdopt: something is, all of which is told; or there is no room for the pods of both.
        """
        side = await self._retries.run(self.look)
        if side.deployment is None or side.is_ours:
            await self._adoption.require(who)
        elif side.rollout is None:
            await self._require_new(side, who)
        return side

    def planned(self, side: DeploymentPlace, who: AdoptedVersion) -> tuple[Write, ...]:
        """What `adopt` would write."""
        return planned(side, who, self._surge_of(side))

    async def adopt(self, who: AdoptedVersion, tell: Tell) -> bool:
        """Take all of it over, or what is left of it; false where it is adopted already.

        Raises:
            CannotAdopt: something is in the way; what was written so far takes nothing from anybody.
            EngineDidNotStart: pods of the Rollout next to the Deployment do not come up; the Deployment serves on.
            WouldTakeDown: a Service would lose pods; the write was not sent.
            FleetError: the API server does not answer, or does not let us.
        """
        side = await self.require(who)
        if side.deployment is None:
            return await self._adoption.adopt(who, tell)
        if not side.is_ours:
            await self._carry_out(lambda now: self._filling(now, who.delivery), _serves_next_to_it, tell)
        changed = await self._adoption.adopt(who, tell, enough=side.wanted)
        emptied = await self._carry_out(_emptying, lambda now: not now.deployed.replicas, tell, pause=self._drain)
        return changed or emptied

    def planned_release(self, side: DeploymentPlace) -> tuple[Write, ...]:
        """What `release` would write.

        Raises:
            CannotAdopt: a trial is under way, or there is nothing to give back.
        """
        self._require_releasable(side)
        if side.deployment is None:
            return (*self._adoption.own_pods_writes(side.place), *giveback(side.place, self._config.name))
        returned = giveback(side.place, self._config.name) if side.is_made else ()
        return (*planned_back(side, self._surge_of(side)), *returned, *ended(side))

    async def release(self, tell: Tell) -> None:
        """Give all of it back, or what is left of it.

        Raises:
            CannotAdopt: a trial is under way, there is no room for the Deployment's pods, or nothing was adopted.
            NotTheCarrier: somebody carries a delivery there.
            FleetError: as `adopt`.
        """
        side = await self._retries.run(self.look)
        self._require_releasable(side)
        if side.deployment is None:
            await self._adoption.release(tell)
            return
        await self._require_room(side, side.deployment, side.wanted - side.deployed.replicas)
        if side.is_ours:
            await self._adoption.enter()
        if side.is_made:
            await self._carry_out(self._returning_first, lambda now: now.deployed.is_whole, tell)
            await self._adoption.give_back(tell)
        await self._carry_out(self._returning, _serves_again, tell)
        await self._carry_out(lambda now: next(ended(now), None), lambda _: True, tell)

    async def renew(self) -> None:
        """Say that we live: nobody else delivers meanwhile. Nothing once the Lease is gone."""
        if not self._is_over:
            await self._adoption.renew()

    async def leave(self) -> None:
        """Release the Lease, if there is one. Never raises."""
        await self._adoption.leave()

    def _chosen(self, rollout: Json | None, deployments: Sequence[Json]) -> Json | None:
        made, name = made_for(rollout), self._config.name
        noted = noting(deployments, name)
        found = made or (name_of(noted) if noted else "") or ("" if rollout else self._deployment or name)
        if self._deployment not in {"", found}:
            told = f"Rollout {name} was {f'made for Deployment {made}' if made else 'there before'}"
            raise CannotAdopt(f"{told}, and is not Deployment {self._deployment}'s", hint="leave out `--deployment`")
        return next((each for each in deployments if name_of(each) == found), None)

    async def _require_new(self, side: DeploymentPlace, who: AdoptedVersion) -> None:
        assert side.deployment is not None, "there is nothing to make a Rollout for"
        if found := deployment_refusals(side, who, self._surge_of(side)):
            raise CannotAdopt(f"{self.region}: {'; '.join(found)}", hint="nothing was written")
        await self._adoption.require(who, expected_place(side, who.delivery))
        await self._require_room(side, side.deployment, side.wanted)

    async def _require_room(self, side: DeploymentPlace, deployment: Json, missing: int) -> None:
        """Both have pods for a while: as many as are `missing`, but no more than the surge at once."""
        engine = {"metadata": {"name": name_of(deployment)}, "spec": deployment["spec"]["template"]["spec"]}
        try:
            rooms = await headroom(self._cluster, engine, nodes_grow=self._config.nodes_grow)
        except Forbidden as error:
            log.warning("%s: it is unknown whether there is room for more pods: %s", self.region, error)
            return
        told, hint = room_refusal(side, min(self._surge_of(side), missing), rooms)
        if told:
            raise CannotAdopt(f"{self.region}: {told}", hint=hint)

    def _require_releasable(self, side: DeploymentPlace) -> None:
        if side.deployment is None and (gone := made_for(side.rollout)):
            told = f"Deployment {gone}, for which Rollout {self._config.name} was made, is gone"
            raise CannotAdopt(told, hint="apply it again with `replicas: 0`, then release the Rollout")
        if side.deployment is None or not (side.is_made or side.noted is not None):
            require_releasable(side.place, self._config.name)
        elif side.is_ours and side.rollout is not None and Rollout(side.rollout).in_progress:
            raise trial_under_way(Rollout(side.rollout))

    def _surge_of(self, side: DeploymentPlace) -> int:
        return side.wanted if self._surge is None else self._surge

    def _filling(self, side: DeploymentPlace, delivery: str) -> Write | None:
        """Pods of the Rollout come; those of the Deployment go where they have to make room."""
        step = next_scale(side.deployed, side.rolled, side.wanted, self._surge_of(side))
        if side.rollout is None:
            return made(side, delivery, step.replicas) if step and step.taking else None
        return _scale(side, step, taking=side.rollout, giving=side.deployment)

    def _returning_first(self, side: DeploymentPlace) -> Write | None:
        """Pods of the Deployment come, as far as there is room; none of the Rollout's go while it has the users."""
        step = next_scale(side.rolled, side.deployed, side.wanted, self._surge_of(side), may_lower=False)
        return _scale(side, step, taking=side.deployment, giving=side.rollout)

    def _returning(self, side: DeploymentPlace) -> Write | None:
        step = next_scale(side.rolled, side.deployed, side.wanted, self._surge_of(side))
        return _scale(side, step, taking=side.deployment, giving=side.rollout)

    async def _carry_out(self, left: Next, done: Holds, tell: Tell, *, pause: float = 0.0) -> bool:
        """Write what is left, one after the other, and wait for pods in between; whether anything was written.

        Between telling a write and sending it there is a `pause`, in seconds.
        """
        progress, told = PodProgress(self._clock, self._config.start_seconds), set[tuple[str, str]]()

        async def one() -> Outcome:
            side = await self.look()
            write = left(side)
            if write is None:
                if done(side):
                    return Outcome.DONE
                progress.require(side)
                return Outcome.WAITS
            if (write.subject, write.what) not in told:
                told.add((write.subject, write.what))
                tell(write)
                if pause:
                    await self._clock.sleep(pause)
                    return Outcome.GOES_ON
            self._is_over = self._is_over or write.live["kind"] == LEASES.kind
            await self._sender.send(write)
            return Outcome.GOES_ON

        while (outcome := await self._retries.run(one)) is not Outcome.DONE:
            if outcome is Outcome.WAITS:
                await self._clock.sleep(POLL_SECONDS)
        return bool(told)

    async def _all(self, kind: Resource) -> Sequence[Json]:
        try:
            return (await self._cluster.list(kind)).items
        except NotFound:
            # KEDA is not everywhere.
            return ()


def _scales(scaler: Json, deployment: Json) -> bool:
    """KEDA's own default is a Deployment."""
    target = at(scaler, "spec", "scaleTargetRef", default={})
    usual = DEPLOYMENTS.kind if scaler["kind"] == SCALED_OBJECTS.kind else ""
    return (target.get("kind") or usual, target.get("name")) == (DEPLOYMENTS.kind, name_of(deployment))


def _scale(side: DeploymentPlace, step: Scale | None, *, taking: Json | None, giving: Json | None) -> Write | None:
    live = taking if step and step.taking else giving
    return scaled(side, live, step.replicas) if step and live else None


def _emptying(side: DeploymentPlace) -> Write | None:
    """The Deployment gives away what it need not keep."""
    keep = kept(side.rolled, side.wanted)
    return scaled(side, side.deployment, keep) if side.deployment and side.deployed.replicas > keep else None


def _serves_next_to_it(side: DeploymentPlace) -> bool:
    """Whether the Rollout has all the pods, and its controller has said so."""
    argo, rolled = Rollout(side.rollout or {}), side.rolled
    at_rest = stable_set(side.place) is not None and not argo.in_progress and not waiting_for_controller(argo.object)
    return at_rest and rolled.is_whole and rolled.replicas >= side.wanted


def _serves_again(side: DeploymentPlace) -> bool:
    """Whether the Deployment has all its pods."""
    return side.deployed.is_whole and side.deployed.replicas >= side.wanted
