"""The port `Fleet` on Kubernetes: each wish is read, decided, sent as a compare-and-set, and read back.

Nothing is kept between wishes: what a wish needs to know stands in the cluster, so that a delivery that died goes on
by saying its wish again, from another machine too.
"""

from __future__ import annotations

import asyncio
import logging

from rollouts.arms import require_percent
from rollouts.cluster.applying import Applying
from rollouts.cluster.arrivals import Arrivals
from rollouts.cluster.claims import refuse, strangers
from rollouts.cluster.fence import Fence
from rollouts.cluster.holds import way_to
from rollouts.cluster.lease import Carrier
from rollouts.cluster.lookout import Lookout
from rollouts.cluster.moves import Moves
from rollouts.cluster.patience import Patience
from rollouts.cluster.place import Place
from rollouts.cluster.ports import Render, Served
from rollouts.cluster.precheck import require_room
from rollouts.cluster.revisions import Revision
from rollouts.cluster.route import RouteKind
from rollouts.cluster.seen import Seen
from rollouts.cluster.state import state_of, taken_back, unfinished
from rollouts.cluster.wanted import engine_of, is_here
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotOurs, NotPossible
from rollouts.kube.ports import Cluster
from rollouts.model import Engine, RegionState, Stranger
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

log = logging.getLogger(__name__)


class ArgoFleet:
    """A `Fleet` of pods behind one Rollout."""

    def __init__(
        self,
        place: Place,
        *,
        cluster: Cluster,
        routes: RouteKind,
        render: Render,
        clock: Clock,
        served: Served | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """`render` makes what the region needs for an engine; without `served` arrivals are not looked at.

        Whoever only looks is no `carrier`.
        """
        self.region = place.region
        self._place = place
        self._cluster = cluster
        self._render = render
        self._clock = clock
        self._fence = Fence(place, cluster, routes, clock, carrier)
        self._lookout = Lookout(place, cluster, routes, clock, self._fence)
        self._moves = Moves(place, cluster, routes, self._lookout, clock=clock, fence=self._fence)
        self._arrivals = Arrivals(place.region, served, clock)
        self._patience = Patience(clock, seconds=place.patience_seconds)

    async def observe(self) -> RegionState:
        return self._state(await self._patience.keep(self._lookout.look))

    async def strangers(self) -> tuple[Stranger, ...]:
        """Objects of others where this delivery's would be, all kinds of them."""
        # Which engine it is changes no name.
        manifests = self._render(Engine(version="0", digest="", model=self._place.name, image="none"))
        return await self._patience.keep(lambda: strangers(self._cluster, manifests, self._place.name))

    async def deploy(self, engine: Engine) -> RegionState:
        applying = Applying(self._place, self._cluster, self._clock, fence=self._fence)
        try:
            return self._state(await self._patience.keep(lambda: self._deploy(engine, applying)))
        except TidegateError as error:
            await applying.put_back(error)
            raise

    async def mirror(self, percent: int) -> RegionState:
        return self._state(await self._patience.keep(lambda: self._mirror(percent)))

    async def shift(self, weight: int) -> RegionState:
        return self._state(await self._patience.keep(lambda: self._shift(weight)))

    async def promote(self) -> RegionState:
        return self._state(await self._patience.keep(self._promote))

    async def rollback(self, to: str | None) -> RegionState:
        if to is not None:
            return self._state(await self._patience.keep(lambda: self._rollback(to)))
        seen = await self._patience.keep(self._lookout.look)
        if seen.stable is None or seen.at_rest:
            return self._state(seen)
        # Decided once: a trial that is promoted while this is said again must not become where it goes back to.
        stable = seen.stable.version
        return self._state(await self._patience.keep(lambda: self._rollback(stable)))

    async def renew(self) -> None:
        """Say in the region that its delivery is carried; nothing where it has not begun.

        Raises:
            FleetError: the API server does not answer, or does not let us.
        """
        await self._fence.renew()

    async def leave(self) -> None:
        """Nothing more is wished by this process. Never raises."""
        await self._fence.leave()

    async def _deploy(self, engine: Engine, applying: Applying) -> Seen:
        if not self._fence.inside:
            # Entering writes too, and nothing is written before everything was looked at.
            refuse(self.region, *await strangers(self._cluster, self._render(engine), self._place.name))
        seen = await self._entered()
        if is_here(seen, engine):
            applying.complete()
        else:
            await self._bring_up(seen, engine, applying)

        def up(now: Seen) -> bool:
            if now.stable and now.stable.version == engine.version:
                return now.stable.whole
            return now.waits_for_users and now.trial is not None and now.trial.version == engine.version

        try:
            return await self._lookout.until(up, f"version {engine.version}", within=self._place.start_seconds)
        except EngineDidNotStart as error:
            await self._give_up(engine, error)
            raise

    async def _entered(self) -> Seen:
        """The region once it is ours to write to, whose it is being looked at first.

        Raises:
            NotOurs: its Rollout, or what splits its users, is somebody else's.
            NotTheCarrier: somebody else carries the delivery here.
        """
        if not self._fence.inside:
            refuse(self.region, *(await self._lookout.look()).strangers)
            await self._fence.enter()
        return await self._looked()

    async def _looked(self) -> Seen:
        """The region before a wish.

        Raises:
            NotOurs: its Rollout is somebody else's: no wish is for us to say there.
        """
        seen = await self._lookout.look()
        refuse(self.region, seen.rollout_of_others)
        return seen

    async def _bring_up(self, seen: Seen, engine: Engine, applying: Applying) -> None:
        if seen.argo.paused_by_spec:
            name = self._place.name
            raise NotPossible(f"somebody holds {name}", hint=f"let it go: tidegate rollout promote {name}")
        manifests = self._render(engine)
        await require_room(self._cluster, self._place, seen, manifests[-1], engine.version)
        if seen.mirror:
            # Ending it is a write too, and nothing is written before everything was looked at.
            refuse(self.region, *await strangers(self._cluster, manifests, self._place.name))
            await self._moves.copy(seen, 0)
        await self._moves.ask_for(manifests, engine.version, seen, applying)
        log.info("%s: version %s was asked for", self.region, engine.version)

    async def _give_up(self, engine: Engine, why: EngineDidNotStart) -> None:
        """Ask for the stable again: no user met the version that did not start. Must not hide why it did not."""
        try:
            seen = await self._lookout.look()
            if seen.stable and seen.stable.version != engine.version:
                await self._without_trial(seen, seen.stable)
        except FleetError as error:
            log.warning("%s: version %s stays asked for (%s): %s", self.region, engine.version, why, error)

    async def _mirror(self, percent: int) -> Seen:
        require_percent(percent)
        seen = await self._entered()
        versions = _both(seen, f"mirror {percent} % of requests to") if percent else None
        before = await self._arrivals.look(versions)
        seen = await self._moves.copy(seen, percent)
        await self._arrivals.prove_copies(percent, before)
        return seen

    async def _shift(self, weight: int) -> Seen:
        require_percent(weight)
        seen = await self._entered()
        versions = _both(seen, f"shift {weight} % of users to") if weight else None
        if seen.trial is None or seen.argo.aborted:
            return seen
        for hold in way_to(seen.argo, weight):
            seen = await self._moves.hold_at(seen, hold)
            log.info("%s: %s %% of users are on the canary", self.region, seen.weight)
        await self._arrivals.prove_share(weight, await self._arrivals.look(versions))
        return seen

    async def _promote(self) -> Seen:
        seen = await self._entered()
        if seen.trial is None:
            if seen.previous:
                return seen
            raise NotPossible("there is no canary to promote", hint="deploy one first")
        stable, version = _both(seen, "promote")
        # Said first: a promotion without it would leave no way back.
        await self._moves.remember(seen, stable)
        await self._moves.copy(seen, 0)
        await self._moves.promote_full(seen)
        return await self._moves.settled(version)

    async def _rollback(self, to: str) -> Seen:
        await self._enter_going_back(to)
        seen = await self._looked()
        if seen.argo.paused_by_spec:
            # Held by hand, nothing moves, and users come first.
            await self._moves.let_go()
            seen = await self._lookout.look()
        if seen.stable and seen.stable.version == to:
            return await self._without_trial(seen, seen.stable)
        if seen.goes_back_to(to):
            if seen.remembered != to:
                # Of two kept warm the one before the last: said first, so that it is a way back when this dies.
                await self._moves.remember(seen, to)
                seen = await self._lookout.look()
            return await self._restored(seen, to)
        warm = " and ".join([*([seen.stable.version] if seen.stable else []), *seen.warm])
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    async def _enter_going_back(self, to: str) -> None:
        """Whoever insists on going back sends users back while the Lease is taken, and does not need it for that."""
        if not self._fence.insists:
            if not self._fence.inside:
                await self._looked()
            await self._fence.enter()
            return
        said: list[object] = [
            *await asyncio.gather(self._abort_at_once(to), self._fence.take(), return_exceptions=True)
        ]
        # Marking comes after: it is a write to the very objects that the abort is written to, if they are ours.
        if not any(isinstance(failed, NotOurs) for failed in said):
            said += await asyncio.gather(self._fence.enter(), return_exceptions=True)
        for failed in said:
            if isinstance(failed, FleetError):
                # What stands in the way of going back is met again, and said, by what follows.
                log.warning("%s: going back all the same: %s", self.region, failed)
            elif isinstance(failed, BaseException):
                raise failed

    async def _abort_at_once(self, to: str) -> None:
        seen = await self._looked()
        if seen.trial and seen.stable and seen.stable.version == to and not seen.abort_confirmed:
            await self._moves.abort(seen)

    async def _without_trial(self, seen: Seen, stable: Revision) -> Seen:
        """Users first; then the template, so that the Rollout asks for what it serves.

        A controller that is silent leaves the second undone: then what was seen tells who serves, and what is left.

        Raises:
            NotConfirmed: it is silent, and not all users are on the stable.
        """
        try:
            if seen.trial and not seen.abort_confirmed:
                await self._moves.abort(seen)
            seen = await self._moves.copy(await self._lookout.look(), 0)
            await self._moves.undo(seen, stable)
            return await self._moves.settled(stable.version, going_back=True)
        except (NotConfirmed, NotPossible) as error:
            seen = await self._lookout.look()
            if seen.stable and seen.stable.version != stable.version and seen.goes_back_to(stable.version):
                # A promotion came to its end before the abort was heard.
                return await self._restored(seen, stable.version)
            if isinstance(error, NotPossible):
                raise
            told = unfinished(seen)
            if not seen.on_stable:
                raise NotConfirmed(told, hint=error.hint) if told else error from error
            log.warning("%s: %s", self.region, told or error)
            return seen

    async def _restored(self, seen: Seen, to: str) -> Seen:
        """A warm version of before; past all steps as long as it is inside the Rollout's `rollbackWindow`."""
        seen = await self._moves.copy(seen, 0)
        if warm := seen.warm.get(to):
            await self._moves.undo(seen, warm)

        def there(now: Seen) -> bool:
            if now.settled:
                return now.stable is not None and now.stable.version == to
            return now.waits_for_users

        what = f"all users on version {to}"
        seen = await self._lookout.until(there, what, within=self._place.start_seconds, going_back=True)
        if not seen.settled:
            await self._moves.promote_full(seen)
            seen = await self._moves.settled(to, going_back=True)
        await self._moves.remember(seen, None)
        return seen

    async def engine_of(self, version: str) -> Engine | None:
        """The engine of a version that served here before, as the region's own history has it; None when it has not."""
        return engine_of(await self._patience.keep(self._lookout.look), version)

    def _state(self, seen: Seen) -> RegionState:
        return state_of(self._place, seen)


def _both(seen: Seen, wish: str) -> tuple[str, str]:
    """Stable's and canary's versions, of a trial that can take traffic.

    Raises:
        NotPossible: when there is none.
    """
    if seen.trial is None or seen.stable is None:
        raise NotPossible(f"there is no canary to {wish}", hint="deploy one first")
    why = taken_back(seen) or ("" if seen.trial.available else f"none of its {seen.trial.wanted} engines is ready")
    if why:
        raise NotPossible(f"the canary, version {seen.trial.version}, is down: cannot {wish} it", detail=why)
    return seen.stable.version, seen.trial.version
