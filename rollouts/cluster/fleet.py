"""The port `Fleet` on a Rollout: what each operation makes of its region."""

from __future__ import annotations

import logging
from datetime import datetime

from rollouts.argo.model import parse_time, path_to_weight
from rollouts.cluster.capacity import require_headroom
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.desired_objects import (
    ApplyTransaction,
    engine_of,
    is_deployed,
    refuse_other_engine,
    tried,
    warm_limit,
)
from rollouts.cluster.model import RegionConfig, Render, Revision, next_attempt
from rollouts.cluster.operations import RegionOperations
from rollouts.cluster.reference import template_writers
from rollouts.cluster.region import GuardedTrial, foreign_objects, refuse_foreign
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.cluster.state import how_to_continue, region_state, require_canary, unfinished_rollback
from rollouts.cluster.traffic_verification import RequestCounter
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotPossible
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import ROLLOUTS
from rollouts.manifests.objects.access import Right, guard_rights
from rollouts.model import Engine, ForeignObject, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.model import Json

log = logging.getLogger(__name__)


class ArgoFleet(RegionOperations):
    """A `Fleet` of pods behind one Rollout."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: KubeClient,
        clock: Clock,
        render: Render = lambda _: (),
        served: RequestCounter | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """`render` makes what the region needs for an engine; without `served` traffic is not verified.

        Without a `carrier` the fleet is read-only.
        """
        super().__init__(config, cluster=cluster, clock=clock, served=served, carrier=carrier)
        self._render = render

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        # Which engine it is changes no name.
        manifests = self._render(Engine(version="0", digest="", model=self._config.name, image="none"))
        return await self._retries.run(lambda: foreign_objects(self._cluster, manifests, self._config.name))

    async def deploy(self, engine: Engine) -> RegionState:
        transaction = ApplyTransaction(self._config, self._cluster, self._clock, fence=self._fence)
        try:
            return await self._operate(lambda: self._bring_up(engine, transaction))
        except TidegateError as error:
            # After the operation's deadline: what is left behind is cleared up all the same.
            await transaction.put_back(error)
            if transaction.committed and isinstance(error, EngineDidNotStart):
                await self._give_up(engine, error)
            raise

    async def engine_of(self, version: str) -> Engine | None:
        return engine_of(await self._retries.run(self._look), version)

    @property
    def rights(self) -> tuple[Right, ...]:
        config = self._config
        pools = config.theirs.services if config.theirs else ()
        return guard_rights(
            config.name, config.rollout, self._routes.resource, config.route, config.workload, pools=pools
        )

    async def trial(self) -> GuardedTrial:
        snapshot = await self._look()
        stable, ours = snapshot.stable, snapshot.foreign_change is None and not snapshot.foreign_objects
        return GuardedTrial(
            asked=snapshot.asked,
            step=snapshot.argo.step_index,
            written=_written(snapshot.rollout),
            stable=stable.version if stable else None,
            trial=snapshot.trial.version if snapshot.trial else snapshot.asked[0],
            going_on=stable is not None and not snapshot.is_at_rest and ours,
            unattended=snapshot.unattended,
            uid=str(snapshot.argo.metadata.get("uid", "")),
        )

    def _state(self, seen: RegionSnapshot) -> RegionState:
        return region_state(seen)

    def _done(self, seen: RegionSnapshot) -> RegionState:
        state, woken = self._state(seen), self._waker.told()
        # A controller that has not reacted was woken in vain, and is told as the problem.
        return state if state.problem else state.model_copy(update={"note": woken})

    async def _bring_up(self, engine: Engine, transaction: ApplyTransaction) -> RegionSnapshot:
        if not self._fence.inside:
            # Entering writes too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, self._render(engine), self._config.name))
        snapshot = await self._entered()
        if is_deployed(snapshot, engine):
            transaction.commit()
        else:
            await self._ask_for(snapshot, engine, transaction)
        snapshot = await self._until_up(engine.version)
        refuse_other_engine(snapshot, engine)
        return snapshot

    async def _ask_for(self, snapshot: RegionSnapshot, engine: Engine, transaction: ApplyTransaction) -> None:
        """Apply everything that a version needs, the Rollout last: then nothing is missing when its pods start."""
        if snapshot.argo.paused_by_spec:
            name = self._config.name
            raise NotPossible(f"{name} is paused by hand", hint=how_to_continue(name))
        manifests = self._render(engine)
        await require_headroom(self._cluster, self._config, snapshot, manifests[-1], engine.version)
        await self._note_way_back(snapshot.stable.version if snapshot.stable else "", engine.version)
        if snapshot.mirror:
            # Ending it is a write too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, manifests, self._config.name))
            await self._set_mirror(snapshot, 0)
        *others, rollout = manifests
        await transaction.apply(others)
        limit = warm_limit(self._config, snapshot, leaving=snapshot.argo.aborted)
        rollout = tried(rollout, next_attempt(engine.version, snapshot.revisions), limit)
        # What is new here has no number yet. Not in what is applied: an apply that leaves it out would take it away.
        await self._fence.mark(self._routes.resource)
        await transaction.apply_rollout(rollout, snapshot.rollout)
        if snapshot.rollout is None:
            await self._fence.mark(ROLLOUTS)
        transaction.commit()
        log.info("%s: version %s was asked for", self.region, engine.version)

    async def _give_up(self, engine: Engine, why: EngineDidNotStart) -> None:
        """Ask for the stable again: no user met the version that did not start. Must not hide why it did not."""
        try:
            snapshot = await self._look()
            if snapshot.stable and snapshot.stable.version != engine.version:
                await self._without_trial(snapshot, snapshot.stable)
        except FleetError as error:
            log.warning("%s: version %s stays asked for (%s): %s", self.region, engine.version, why, error)

    async def _set_weight(self, seen: RegionSnapshot, weight: int) -> RegionSnapshot:
        if weight:
            require_canary(seen, f"shift {weight} % of users to")
        elif seen.trial is None or seen.argo.aborted:
            return seen
        for point in path_to_weight(seen.argo, weight):
            seen = await self._move_to(seen, point)
            if seen.is_canary_down:
                break
            log.info("%s: %s %% of users are on the canary", self.region, seen.weight)
        return seen

    async def _promote(self) -> RegionSnapshot:
        snapshot = await self._entered()
        if snapshot.trial is None:
            if snapshot.previous:
                return snapshot
            raise NotPossible("there is no canary to promote", hint="deploy one first")
        stable, version = require_canary(snapshot, "promote")
        # Said first: a promotion without it would leave no way back.
        await self._note_previous(snapshot, stable)
        await self._set_mirror(snapshot, 0)
        await self._rollout.promote_full(snapshot.argo.pod_hash)
        return await self._until_stable(version)

    def _way_back_of(self, seen: RegionSnapshot) -> str | None:
        return None if seen.stable is None or seen.is_at_rest else seen.stable.version

    async def _rollback(self, to: str) -> RegionSnapshot:
        snapshot = await self._looked()
        if snapshot.argo.paused_by_spec:
            # Held by hand, nothing moves, and users come first.
            await self._rollout.resume()
            snapshot = await self._look()
        if snapshot.stable and snapshot.stable.version == to:
            return await self._without_trial(snapshot, snapshot.stable)
        if snapshot.can_go_back_to(to):
            if snapshot.remembered != to:
                # Of two kept warm the one before the last: said first, so that it is a way back when this dies.
                await self._note_previous(snapshot, to)
                snapshot = await self._look()
            return await self._restored(snapshot, to)
        warm = " and ".join([*([snapshot.stable.version] if snapshot.stable else []), *snapshot.warm])
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    async def _abort_at_once(self, to: str) -> None:
        snapshot = await self._looked()
        if snapshot.trial and snapshot.stable and snapshot.stable.version == to and not snapshot.is_taken_back:
            await self._abort(snapshot)

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
        await self._undo(snapshot, kept)
        return await self._restored(await self._look(), version)

    async def _without_trial(self, snapshot: RegionSnapshot, stable: Revision) -> RegionSnapshot:
        """Users first; then the template, so that the Rollout asks for what it serves.

        A controller that is silent leaves the second undone: then what was seen tells who serves, and what is left.

        Raises:
            NotConfirmed: it is silent, and not all users are on the stable.
        """
        try:
            if snapshot.trial and not snapshot.is_taken_back:
                await self._abort(snapshot)
            snapshot = await self._set_mirror(await self._look(), 0)
            await self._undo(snapshot, stable)
            return await self._until_stable(stable.version, going_back=True)
        except (NotConfirmed, NotPossible) as error:
            snapshot = await self._look()
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
        snapshot = await self._set_mirror(snapshot, 0)
        if warm := snapshot.warm.get(to):
            await self._undo(snapshot, warm)

        def there(now: RegionSnapshot) -> bool:
            if now.is_settled:
                return now.stable is not None and now.stable.version == to
            return now.is_ready_for_users

        snapshot = await self._until(there, f"all users on version {to}", going_back=True)
        if not snapshot.is_settled:
            await self._rollout.promote_full(snapshot.argo.pod_hash)
            snapshot = await self._until_stable(to, going_back=True)
        await self._note_previous(snapshot, None)
        return snapshot


def _written(rollout: Json | None) -> datetime | None:
    """When somebody last wrote its pod template."""
    entries = template_writers(rollout) if rollout else []
    return max((at for each in entries if (at := parse_time(each.get("time")))), default=None)
