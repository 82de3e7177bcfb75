"""The port `Fleet` on a Rollout: how its region is read, and what each operation writes, onto what was read.

It polls every second while an operation is in progress, and does not watch: a snapshot needs nothing from those before,
so neither a stream that was cut nor an event that was missed can leave an operation waiting for what happened already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rollouts.argo.actions import RolloutClient, change, original_template, templates_match
from rollouts.argo.model import PausePoint, entry_step, is_resting_at, path_to_weight, pending_reaction
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.desired_objects import (
    ApplyTransaction,
    engine_of,
    is_deployed,
    refusals,
    refuse_other_engine,
    tried,
)
from rollouts.cluster.model import RegionConfig, Render, Revision
from rollouts.cluster.reference import RegionNotes, with_workload
from rollouts.cluster.region import CarriedRegion, Served, foreign_objects, refuse_foreign, refuse_misfits
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.cluster.state import (
    how_to_continue,
    missing_pods,
    refuse_hopeless,
    region_state,
    require_canary,
    timeout_error,
    unfinished_rollback,
)
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotFound, NotPossible
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at, written
from rollouts.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, ROLLOUTS
from rollouts.kube.retry import Attempts, RetryPolicy, is_transient, time_left, urgent
from rollouts.manifests.conventions import PREVIOUS
from rollouts.manifests.objects.access import Right, guard_rights
from rollouts.model import Engine, ForeignObject, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY
from tidegate.core.process import note

POLL_SECONDS = 1.0
"""Between two snapshots while an operation is in progress."""

TOLD_AFTER_SECONDS = 60.0
"""A pod that is kept from starting for longer is told; a node that is bought may still come."""

SETTLE_SECONDS = 120.0
"""For what the API server itself does at once."""

HEAD_START_SECONDS = 0.2
"""Of the abort before our own write: a controller that sees the route change, as Istio's does, and not yet the abort
would write the old weight once more."""

AGAIN_SECONDS = 30.0
"""How long the way back is written again."""

log = logging.getLogger(__name__)


class ArgoFleet(CarriedRegion[RegionSnapshot]):
    """A `Fleet` of pods behind one Rollout."""

    def __init__(
        self,
        config: RegionConfig,
        *,
        cluster: KubeClient,
        clock: Clock,
        render: Render = lambda _: (),
        served: Served | None = None,
        carrier: Carrier | None = None,
        tried: Engine | None = None,
    ) -> None:
        """`render` makes what the region needs for an engine; without `served` traffic is not verified.

        Without a `carrier` the fleet is read-only. The objects of `tried` are shown to the API server beforehand.
        """
        workload = ((DEPLOYMENTS, config.workload),) if config.workload else ()
        moving = ((ROLLOUTS, config.rollout), *workload, (config.routes.resource, config.route))
        super().__init__(config, cluster, clock, moving=moving, served=served, carrier=carrier)
        self._config, self._routes, self._render, self._tried = config, config.routes, render, tried
        self._rollout = RolloutClient(config.rollout, cluster, clock, allows=self.fence.allows)

    async def foreign_objects(self) -> tuple[ForeignObject, ...]:
        # Which engine it is changes no name.
        any_engine = Engine(version="0", digest="", model=self._config.name, image="none")
        manifests = self._render(self._tried or any_engine)
        found = await self._retries.run(lambda: foreign_objects(self._cluster, manifests, self._config.name))
        if self._tried and not found:
            refuse_misfits(self.region, await self._retries.run(lambda: refusals(self._cluster, manifests)))
        return found

    async def deploy(self, engine: Engine) -> RegionState:
        transaction = ApplyTransaction(self._config, self._cluster, self._clock, fence=self.fence)
        try:
            return await self._operate(lambda: self._bring_up(engine, transaction))
        except TidegateError as error:
            # After the operation's deadline: what is left behind is cleared up all the same.
            await transaction.put_back(error)
            if transaction.committed and isinstance(error, EngineDidNotStart):
                await self._give_up(engine, error)
            raise

    async def engine_of(self, version: str) -> Engine | None:
        return engine_of(await self._retries.run(self.look), version)

    @property
    def rights(self) -> tuple[Right, ...]:
        config, route = self._config, self._routes.resource
        pools = config.theirs.services if config.theirs else ()
        return guard_rights(config.name, config.rollout, route, config.route, config.workload, pools=pools)

    def _state(self, seen: RegionSnapshot) -> RegionState:
        return region_state(seen)

    def _done(self, seen: RegionSnapshot) -> RegionState:
        state, woken = self._state(seen), self._rollout.woken()
        # A controller that has not reacted was woken in vain, and is told as the problem.
        return state if state.problem else state.model_copy(update={"note": woken})

    async def _bring_up(self, engine: Engine, transaction: ApplyTransaction) -> RegionSnapshot:
        if not self.fence.inside:
            # Entering writes too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, self._render(engine), self._config.name))
        snapshot = await self._entered()
        if is_deployed(snapshot, engine):
            transaction.commit()
        else:
            await self._ask_for(snapshot, engine, transaction)
        snapshot = await self._until(lambda now: now.is_up(engine.version), f"version {engine.version}")
        refuse_other_engine(snapshot, engine)
        return snapshot

    async def _ask_for(self, snapshot: RegionSnapshot, engine: Engine, transaction: ApplyTransaction) -> None:
        """Apply everything that a version needs, the Rollout last: then nothing is missing when its pods start."""
        self._refuse_held(snapshot)
        manifests = self._render(engine)
        await self._note_way_back(snapshot.serving, engine.version)
        if snapshot.mirror:
            # Ending it is a write too, and nothing is written before everything was looked at.
            refuse_foreign(self.region, *await foreign_objects(self._cluster, manifests, self._config.name))
            await self._set_mirror(snapshot, 0)
        *others, rollout = manifests
        await transaction.apply(others)
        tries = (each.attempt for each in snapshot.revisions if each.version == engine.version)
        rollout = tried(rollout, max(tries, default=0) + 1)
        # What is new here has no number yet. Not in what is applied: an apply that leaves it out would take it away.
        await self.fence.mark()
        await transaction.apply_rollout(rollout, snapshot.rollout)
        if snapshot.rollout is None:
            await self.fence.mark()
        transaction.commit()
        log.info("%s: version %s was asked for", self.region, engine.version)

    async def _give_up(self, engine: Engine, why: EngineDidNotStart) -> None:
        """Ask for the stable again: no user met the version that did not start. Must not hide why it did not."""
        try:
            snapshot = await self.look()
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
        self._refuse_held(snapshot)
        stable, version = require_canary(snapshot, "promote")
        # Said first: a promotion without it would leave no way back.
        await self._note_previous(snapshot, stable)
        await self._set_mirror(snapshot, 0)
        await self._rollout.promote_full(snapshot.argo.pod_hash)
        return await self._until_stable(version)

    def _way_back_of(self, seen: RegionSnapshot) -> str | None:
        return None if seen.stable is None or seen.is_at_rest else seen.stable.version

    async def _rollback(self, to: str) -> RegionSnapshot:
        snapshot = await self._let_go(await self._looked())
        if snapshot.stable and snapshot.serving == to:
            return await self._without_trial(snapshot, snapshot.stable)
        if snapshot.can_go_back_to(to):
            if snapshot.remembered != to:
                # Of two kept warm the one before the last: said first, so that it is a way back when this dies.
                await self._note_previous(snapshot, to)
                snapshot = await self.look()
            return await self._restored(snapshot, to)
        warm = " and ".join(filter(None, (snapshot.serving, *snapshot.warm)))
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    def _refuse_held(self, snapshot: RegionSnapshot) -> None:
        if snapshot.argo.paused_by_spec:
            raise NotPossible(f"{self._config.name} is paused by hand", hint=how_to_continue(self._config.name))

    async def _let_go(self, snapshot: RegionSnapshot) -> RegionSnapshot:
        """Held by hand, nothing moves, and users come first."""
        if not snapshot.argo.paused_by_spec:
            return snapshot
        await self._rollout.resume()
        return await self.look()

    async def _abort_at_once(self, to: str) -> None:
        snapshot = await self._looked()
        if snapshot.trial and snapshot.serving == to and not snapshot.is_taken_back:
            await self._abort(snapshot)

    async def _restart(self, version: str) -> RegionSnapshot:
        snapshot = await self._let_go(await self._entered())
        if snapshot.stable and snapshot.serving == version:
            return await self._without_trial(snapshot, snapshot.stable)
        kept = next((each for each in snapshot.revisions if each.version == version), None)
        if kept is None:
            raise NotPossible(
                f"no ReplicaSet of {self._config.name} is of version {version}",
                hint="start it by its image: `tidegate rollback --to VERSION --start`",
            )
        await self._undo(snapshot, kept)
        return await self._restored(await self.look(), version)

    async def _without_trial(self, snapshot: RegionSnapshot, stable: Revision) -> RegionSnapshot:
        """Users first; then the template, so that the Rollout asks for what it serves.

        A controller that is silent leaves the second undone: then what was seen tells who serves, and what is left.
        """
        try:
            if snapshot.trial and not snapshot.is_taken_back:
                await self._abort(snapshot)
            snapshot = await self._set_mirror(await self.look(), 0)
            await self._undo(snapshot, stable)
            return await self._until_stable(stable.version, going_back=True)
        except (NotConfirmed, NotPossible) as error:
            snapshot = await self.look()
            moved = snapshot.stable is not None and snapshot.serving != stable.version
            if moved and snapshot.can_go_back_to(stable.version):
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
            return now.serving == to if now.is_settled else now.is_ready_for_users

        snapshot = await self._until(there, f"all users on version {to}", going_back=True)
        if not snapshot.is_settled:
            await self._rollout.promote_full(snapshot.argo.pod_hash)
            snapshot = await self._until_stable(to, going_back=True)
        await self._note_previous(snapshot, None)
        return snapshot

    async def look(self) -> RegionSnapshot:
        config = self._config
        # First: whatever it speaks of is there in what is read after it.
        rollout = await self._cluster.find(ROLLOUTS, config.rollout)
        workload = await self._cluster.find(DEPLOYMENTS, config.workload) if config.workload else None
        rollout = with_workload(rollout, workload) if rollout else None
        # By which the pods of all versions are selected, and their ReplicaSets.
        theirs = at(rollout, "spec", "selector", "matchLabels", default={})
        ours = written(theirs if config.theirs else {DELIVERY: config.name})
        sets, route, notes = await asyncio.gather(
            self._cluster.list(REPLICA_SETS, labels=ours),
            self._cluster.find(self._routes.resource, config.route),
            self._noted(),
        )
        # Whatever is written is written onto these, or decided by them.
        for each in (rollout, workload, route):
            self.fence.allows(each)
        snapshot = RegionSnapshot(
            at=self._clock.now(),
            place=config,
            rollout=rollout,
            workload=workload,
            replica_sets=sets,
            route=route,
            notes=notes,
        )
        if rollout is None or snapshot.is_whole:
            return snapshot
        snapshot.pods = await self._cluster.list(PODS, labels=ours)
        return snapshot

    async def _noted(self) -> RegionNotes:
        """What is remembered of a Rollout of others."""
        return RegionNotes()

    async def _until(
        self,
        holds: Callable[[RegionSnapshot], bool],
        what: str,
        *,
        within: float | None = None,
        going_back: bool = False,
    ) -> RegionSnapshot:
        """The first snapshot for which `holds` is true; `what` says in an error what was waited for.

        With `going_back` the fate of the trial does not matter. `within` is as long as engines may take to start,
        unless it says otherwise.
        """
        begun, told = self._clock.monotonic(), False
        first = snapshot = await self.look()
        while not holds(snapshot):
            waited = self._clock.monotonic() - begun
            if waited >= TOLD_AFTER_SECONDS and not told and (missing := missing_pods(snapshot)):
                told = True
                note(f"{self.region}: {what} waits: {missing}")
            refuse_hopeless(snapshot, what, first=first, waited=waited, going_back=going_back)
            if waited >= (within or self._config.start_seconds) or time_left() <= 0:
                raise timeout_error(snapshot, what, waited)
            if snapshot.rollout and pending_reaction(snapshot.rollout):
                await self._rollout.wake(snapshot.rollout)
            await self._clock.sleep(POLL_SECONDS)
            snapshot = await self.look()
        return snapshot

    async def _until_stable(self, version: str, *, going_back: bool = False) -> RegionSnapshot:
        return await self._until(
            lambda now: now.is_settled and now.serving == version,
            f"all users on version {version}",
            going_back=going_back,
        )

    async def _set_mirror(self, seen: RegionSnapshot, percent: int) -> RegionSnapshot:
        """Our own filter on the route."""
        if percent:
            require_canary(seen, f"mirror {percent} % of requests to")
        if seen.mirror == percent:
            return seen
        if seen.route is None:
            raise NotPossible(
                f"{self._routes.resource.kind} {self._config.route} is gone: nothing can be mirrored",
                hint="apply it again: the set-up part of `tidegate rollout render`",
            )
        refuse_foreign(self.region, *seen.foreign_objects)
        await self._cluster.replace(self._routes.resource, self._routes.mirrored(seen.route, percent))
        return await self._until(lambda now: now.mirror == percent, f"a mirror of {percent} %", within=SETTLE_SECONDS)

    async def _move_to(self, snapshot: RegionSnapshot, point: PausePoint) -> RegionSnapshot:
        """The Rollout rests at that pause, and the route has its weight; or the canary has no engine to get there."""
        await self._rollout.to_step(entry_step(snapshot.argo, point), snapshot.argo.pod_hash)

        def rests(now: RegionSnapshot) -> bool:
            there = now.observed and is_resting_at(now.argo, point) and now.weight == point.weight
            return now.is_canary_down or there

        return await self._until(rests, f"a weight of {point.weight} %")

    async def _abort(self, snapshot: RegionSnapshot) -> None:
        """All users on the stable and no more copies: by the controller, and by ourselves `HEAD_START_SECONDS` later.

        Neither waits for the other's success. A controller that lives writes the same weight; were it just about to
        write the old one, the abort comes next in its queue, and it says that it aborted only after it wrote the new
        one (`rolloutCanary`: traffic before status). One that did not react is told, with where users are.
        """
        aborted, routed = await asyncio.gather(
            self._rollout.abort(snapshot.argo.pod_hash), self._send_back(snapshot), return_exceptions=True
        )
        for failed in (aborted, routed):
            if isinstance(failed, BaseException) and not isinstance(failed, FleetError):
                raise failed
        if not isinstance(aborted, BaseException):
            return
        log.warning("%s: the abort: %s", self.region, aborted)
        # One that died on the way may have written the old weight after us.
        await self._send_back(snapshot)
        raise aborted

    async def _send_back(self, snapshot: RegionSnapshot) -> None:
        """Write the way back into the route, at once and again until it is taken."""
        kind, route = self._routes, snapshot.route
        await self._clock.sleep(HEAD_START_SECONDS)
        attempts = Attempts(RetryPolicy(self._clock, seconds=AGAIN_SECONDS))
        while (route := await self._route_now(route)) is not None:
            if other := self._config.foreign(route):
                log.warning("%s: %s: the way back is left to its controller", self.region, other)
                return
            # Never up: the one who is on the stable already stays there.
            weight = min(snapshot.weight_that_stays, kind.weight(route))
            changed = kind.mirrored(kind.weighted(route, weight), 0)
            if changed == route:
                return
            try:
                await self._cluster.replace(kind.resource, changed)
            except FleetError as error:
                if not is_transient(error):
                    raise
                log.warning("%s: the way back is written again: %s", self.region, error)
                with urgent():
                    again = await attempts.pause()
                if not again:
                    what = f"{kind.resource.kind} {self._config.route} could not be written"
                    raise NotConfirmed(f"{what}: users stay where it sends them") from error
            else:
                return

    async def _route_now(self, before: Json | None) -> Json | None:
        """As it is, or as it was where nobody tells: an old one is not taken."""
        try:
            route = await self._cluster.get(self._routes.resource, self._config.route)
        except NotFound:
            return None
        except FleetError:
            return before
        self.fence.allows(route)
        return route

    async def _undo(self, snapshot: RegionSnapshot, wanted: Revision) -> None:
        """Ask for that revision's template again; nothing when it is asked for."""
        await self._ask_again(snapshot, original_template(wanted.replica_set))

    async def _ask_again(self, snapshot: RegionSnapshot, template: Json) -> None:
        rollout = snapshot.found
        if not templates_match(rollout["spec"]["template"], template):
            replaced = {"op": "replace", "path": "/spec/template", "value": template}
            await change(self._cluster, ROLLOUTS, rollout, [replaced])

    async def _note_previous(self, snapshot: RegionSnapshot, version: str | None) -> None:
        """Note the way back; None forgets it."""
        if snapshot.remembered != (version or ""):
            noted = {"resourceVersion": snapshot.argo.resource_version, "annotations": {PREVIOUS: version}}
            await self._cluster.patch(ROLLOUTS, self._config.name, {"metadata": noted})
