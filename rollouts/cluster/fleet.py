"""The port `Fleet` on Kubernetes: each operation is read, decided, sent as a compare-and-set, and read back.

Nothing is kept between operations: what one needs to know is in the cluster, so that a delivery that died resumes by
repeating its operation, from another machine too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from rollouts.argo.model import path_to_weight
from rollouts.argo.waking import Waker
from rollouts.cluster.capacity import require_headroom
from rollouts.cluster.carried import CarriedRegion
from rollouts.cluster.carrier import Carrier, Fence
from rollouts.cluster.desired_objects import ApplyTransaction, engine_of, is_deployed, refuse_other_engine
from rollouts.cluster.model import RegionConfig, Render, Revision
from rollouts.cluster.observer import (
    RegionObserver,
    how_to_continue,
    moving_users,
    region_state,
    rollback_reason,
    unfinished_rollback,
)
from rollouts.cluster.operations import RegionOperations
from rollouts.cluster.ownership import foreign_objects, refuse_foreign
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.cluster.traffic_verification import RequestCounter, TrafficVerifier
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotPossible
from rollouts.kube.client import KubeClient
from rollouts.kube.retry import deadline, urgent
from rollouts.model import Engine, ForeignObject, RegionState, require_percent
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

log = logging.getLogger(__name__)


class ArgoFleet(CarriedRegion):
    """A `Fleet` of pods behind one Rollout."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: KubeClient,
        render: Render,
        clock: Clock,
        served: RequestCounter | None = None,
        carrier: Carrier | None = None,
        engines: Sequence[Engine] = (),
    ) -> None:
        """`render` makes what the region needs for an engine; without `served` traffic is not verified.

        Without a `carrier` the fleet is read-only. `engines` are those of a plan, for a Rollout of others.
        """
        self.region = config.region
        self._config = config
        self._cluster = cluster
        self._render = render
        self._clock = clock
        super().__init__(config, Fence(config, cluster, moving_users(config), clock, carrier), clock)
        self._waker = Waker(cluster, clock, allows=self._fence.allows)
        self._observer = RegionObserver(config, cluster, clock, self._fence, waker=self._waker, engines=engines)
        self._operations = RegionOperations(
            config, cluster, self._observer, clock=clock, fence=self._fence, waker=self._waker
        )
        self._verifier = TrafficVerifier(config.region, served, clock)

    async def observe(self) -> RegionState:
        return region_state(self._config, await self._retries.run(self._observed))

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        # Which engine it is changes no name.
        manifests = self._render(Engine(version="0", digest="", model=self._config.name, image="none"))
        return await self._retries.run(lambda: foreign_objects(self._cluster, manifests, self._config.name))

    async def restart(self, version: str) -> RegionState:
        return self._state(await self._retries.run(lambda: self._restart(version)))

    async def deploy(self, engine: Engine) -> RegionState:
        transaction = ApplyTransaction(self._config, self._cluster, self._clock, fence=self._fence)
        try:
            return self._state(await self._retries.run(lambda: self._deploy(engine, transaction)))
        except TidegateError as error:
            # After the operation's deadline: what is left behind is cleared up all the same.
            await transaction.put_back(error)
            if transaction.committed and isinstance(error, EngineDidNotStart):
                await self._give_up(engine, error)
            raise

    async def mirror(self, percent: int) -> RegionState:
        return self._state(await self._retries.run(lambda: self._mirror(percent)))

    async def shift(self, weight: int) -> RegionState:
        return self._state(await self._retries.run(lambda: self._shift(weight)))

    async def promote(self) -> RegionState:
        return self._state(await self._retries.run(self._promote))

    async def rollback(self, to: str | None) -> RegionState:
        with urgent():
            return await self._taken_back(to)

    async def _taken_back(self, to: str | None) -> RegionState:
        if to is not None:
            return self._state(await self._retries.run(lambda: self._rollback(to)))
        with deadline(self._clock, self._config.operation_seconds):
            snapshot = await self._retries.run(self._observer.observe)
            if snapshot.stable is None or snapshot.is_at_rest:
                return self._state(snapshot)
            # Decided once: a trial that is promoted while this is retried must not become where it goes back to.
            stable = snapshot.stable.version
            return self._state(await self._retries.run(lambda: self._rollback(stable)))

    async def _observed(self) -> RegionSnapshot:
        await self._fence.succeed()
        return await self._observer.observe()

    async def _deploy(self, engine: Engine, transaction: ApplyTransaction) -> RegionSnapshot:
        if not self._fence.inside:
            # Entering writes too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, self._render(engine), self._config.name))
        snapshot = await self._entered()
        if is_deployed(snapshot, engine):
            transaction.commit()
        else:
            await self._bring_up(snapshot, engine, transaction)

        def up(now: RegionSnapshot) -> bool:
            if now.stable and now.stable.version == engine.version:
                return now.stable.is_complete
            return now.is_ready_for_users and now.trial is not None and now.trial.version == engine.version

        snapshot = await self._observer.until(up, f"version {engine.version}", within=self._config.start_seconds)
        refuse_other_engine(snapshot, engine)
        return snapshot

    async def _entered(self) -> RegionSnapshot:
        """The region once it is ours to write to, whose it is being looked at first.

        Raises:
            NotOurs: its Rollout, or what splits its users, is somebody else's.
            NotTheCarrier: somebody else carries the delivery here.
        """
        if not self._fence.inside:
            refuse_foreign(self.region, *(await self._observer.observe()).foreign_objects)
            await self._fence.enter()
        return await self._looked()

    async def _looked(self) -> RegionSnapshot:
        """The region before an operation.

        Raises:
            NotOurs: its Rollout is somebody else's: no operation is allowed there.
        """
        snapshot = await self._observer.observe()
        refuse_foreign(self.region, snapshot.foreign_rollout)
        return snapshot

    async def _bring_up(self, snapshot: RegionSnapshot, engine: Engine, transaction: ApplyTransaction) -> None:
        if snapshot.argo.paused_by_spec:
            name = self._config.name
            raise NotPossible(f"{name} is paused by hand", hint=how_to_continue(name))
        manifests = self._render(engine)
        await require_headroom(self._cluster, self._config, snapshot, manifests[-1], engine.version)
        await self._note_way_back(snapshot.stable.version if snapshot.stable else "", engine.version)
        if snapshot.mirror:
            # Ending it is a write too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, manifests, self._config.name))
            await self._operations.set_mirror(snapshot, 0)
        await self._operations.deploy(manifests, engine.version, snapshot, transaction)
        log.info("%s: version %s was asked for", self.region, engine.version)

    async def _settle(self) -> None:
        await self._entered()
        await self._fence.note_way_back("")

    async def _restart(self, version: str) -> RegionSnapshot:
        snapshot = await self._entered()
        if snapshot.stable and snapshot.stable.version == version:
            return await self._without_trial(snapshot, snapshot.stable)
        kept = next((each for each in snapshot.revisions if each.version == version), None)
        if kept is None:
            raise NotPossible(
                f"no ReplicaSet of {self._config.name} is of version {version}",
                hint="start it by its image: `tidegate rollback --to VERSION --start`",
            )
        await self._operations.undo(snapshot, kept)
        return await self._restored(await self._observer.observe(), version)

    async def _give_up(self, engine: Engine, why: EngineDidNotStart) -> None:
        """Ask for the stable again: no user met the version that did not start. Must not hide why it did not."""
        try:
            snapshot = await self._observer.observe()
            if snapshot.stable and snapshot.stable.version != engine.version:
                await self._without_trial(snapshot, snapshot.stable)
        except FleetError as error:
            log.warning("%s: version %s stays asked for (%s): %s", self.region, engine.version, why, error)

    async def _mirror(self, percent: int) -> RegionSnapshot:
        require_percent(percent)
        snapshot = await self._entered()
        versions = _both(snapshot, f"mirror {percent} % of requests to") if percent else None
        before = await self._verifier.counts(versions)
        snapshot = await self._operations.set_mirror(snapshot, percent)
        if await self._verifier.check_mirror(percent, before, lambda: self._sends(lambda now: now.mirror == percent)):
            return snapshot
        return await self._observer.observe()

    async def _shift(self, weight: int) -> RegionSnapshot:
        require_percent(weight)
        snapshot = await self._entered()
        versions = _both(snapshot, f"shift {weight} % of users to") if weight else None
        if snapshot.trial is None or snapshot.argo.aborted:
            return snapshot
        for point in path_to_weight(snapshot.argo, weight):
            snapshot = await self._operations.move_to(snapshot, point)
            if snapshot.is_canary_down:
                return snapshot
            log.info("%s: %s %% of users are on the canary", self.region, snapshot.weight)
        before = await self._verifier.counts(versions)
        if await self._verifier.check_share(weight, before, lambda: self._sends(lambda now: now.weight == weight)):
            return snapshot
        return await self._observer.observe()

    async def _sends(self, as_set: Callable[[RegionSnapshot], bool]) -> bool:
        """Whether the route is as it was set, and requests that it sends to the canary find an engine."""
        now = await self._observer.observe()
        return as_set(now) and not now.is_canary_down

    async def _promote(self) -> RegionSnapshot:
        snapshot = await self._entered()
        if snapshot.trial is None:
            if snapshot.previous:
                return snapshot
            raise NotPossible("there is no canary to promote", hint="deploy one first")
        stable, version = _both(snapshot, "promote")
        # Said first: a promotion without it would leave no way back.
        await self._operations.note_previous(snapshot, stable)
        await self._operations.set_mirror(snapshot, 0)
        await self._operations.promote_full(snapshot)
        return await self._operations.wait_until_stable(version)

    async def _rollback(self, to: str) -> RegionSnapshot:
        await self._enter_going_back(to)
        snapshot = await self._looked()
        if snapshot.argo.paused_by_spec:
            # Held by hand, nothing moves, and users come first.
            await self._operations.resume()
            snapshot = await self._observer.observe()
        if snapshot.stable and snapshot.stable.version == to:
            return await self._without_trial(snapshot, snapshot.stable)
        if snapshot.can_go_back_to(to):
            if snapshot.remembered != to:
                # Of two kept warm the one before the last: said first, so that it is a way back when this dies.
                await self._operations.note_previous(snapshot, to)
                snapshot = await self._observer.observe()
            return await self._restored(snapshot, to)
        warm = " and ".join([*([snapshot.stable.version] if snapshot.stable else []), *snapshot.warm])
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    async def _enter_going_back(self, to: str) -> None:
        """Anyone who insists on going back sends users back while the Lease is taken, and does not need it for that."""
        if not self._fence.insists:
            if not self._fence.inside:
                await self._looked()
            await self._fence.enter()
            return
        await self._back_first(self._abort_at_once(to))

    async def _abort_at_once(self, to: str) -> None:
        snapshot = await self._looked()
        if snapshot.trial and snapshot.stable and snapshot.stable.version == to and not snapshot.is_taken_back:
            await self._operations.abort(snapshot)

    async def _without_trial(self, snapshot: RegionSnapshot, stable: Revision) -> RegionSnapshot:
        """Users first; then the template, so that the Rollout asks for what it serves.

        A controller that is silent leaves the second undone: then what was seen tells who serves, and what is left.

        Raises:
            NotConfirmed: it is silent, and not all users are on the stable.
        """
        try:
            if snapshot.trial and not snapshot.is_taken_back:
                await self._operations.abort(snapshot)
            snapshot = await self._operations.set_mirror(await self._observer.observe(), 0)
            await self._operations.undo(snapshot, stable)
            return await self._operations.wait_until_stable(stable.version, going_back=True)
        except (NotConfirmed, NotPossible) as error:
            snapshot = await self._observer.observe()
            if (
                snapshot.stable
                and snapshot.stable.version != stable.version
                and snapshot.can_go_back_to(stable.version)
            ):
                # A promotion came to its end before the abort was heard.
                return await self._restored(snapshot, stable.version)
            if isinstance(error, NotPossible):
                raise
            told = unfinished_rollback(snapshot)
            if not snapshot.is_on_stable:
                raise NotConfirmed(told, hint=error.hint) if told else error from error
            log.warning("%s: %s", self.region, told or error)
            return snapshot

    async def _restored(self, snapshot: RegionSnapshot, to: str) -> RegionSnapshot:
        """A warm version of before; past all steps as long as it is inside the Rollout's `rollbackWindow`."""
        snapshot = await self._operations.set_mirror(snapshot, 0)
        if warm := snapshot.warm.get(to):
            await self._operations.undo(snapshot, warm)

        def there(now: RegionSnapshot) -> bool:
            if now.is_settled:
                return now.stable is not None and now.stable.version == to
            return now.is_ready_for_users

        what = f"all users on version {to}"
        snapshot = await self._observer.until(there, what, within=self._config.start_seconds, going_back=True)
        if not snapshot.is_settled:
            await self._operations.promote_full(snapshot)
            snapshot = await self._operations.wait_until_stable(to, going_back=True)
        await self._operations.note_previous(snapshot, None)
        return snapshot

    async def engine_of(self, version: str) -> Engine | None:
        return engine_of(await self._retries.run(self._observer.observe), version)

    def _state(self, snapshot: RegionSnapshot) -> RegionState:
        state, woken = region_state(self._config, snapshot), self._waker.told()
        # A controller that has not reacted was woken in vain, and is told as the problem.
        return state if state.problem else state.model_copy(update={"note": woken})


def _both(snapshot: RegionSnapshot, operation: str) -> tuple[str, str]:
    """Stable's and canary's versions, of a trial that can take traffic.

    Raises:
        NotPossible: when there is none.
    """
    if snapshot.trial is None or snapshot.stable is None:
        raise NotPossible(f"there is no canary to {operation}", hint="deploy one first")
    why = rollback_reason(snapshot) or (
        "" if snapshot.trial.available else f"none of its {snapshot.trial.wanted} engines is ready"
    )
    if why:
        raise NotPossible(
            f"the canary, version {snapshot.trial.version}, is down: cannot {operation} it",
            hint="--debug shows why; roll it back with `tidegate rollback`",
            detail=why,
        )
    return snapshot.stable.version, snapshot.trial.version
