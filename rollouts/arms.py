"""Who serves in a region, and what every wish makes of it. Pure: each step returns new arms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rollouts.errors import NotPossible
from rollouts.model import Arm, Phase, RegionState, Role
from rollouts.ports import RunningEngine
from rollouts.xds import Routes, Upstream


@dataclass(frozen=True)
class Arms:
    """The engines of a region by role, and how users are spread over them."""

    stable: RunningEngine | None = None
    canary: RunningEngine | None = None
    previous: RunningEngine | None = None
    weight: int = 0
    """Percent of users on the canary."""
    mirror: int = 0
    """Percent of users' requests copied to the canary."""

    def __iter__(self) -> Iterator[tuple[Role, RunningEngine]]:
        for role in Role:
            running: RunningEngine | None = getattr(self, role)
            if running is not None:
                yield role, running

    def running(self, version: str) -> RunningEngine | None:
        """The engine of that version, in whatever role."""
        return next((running for _, running in self if running.engine.version == version), None)

    def with_trial(self, canary: RunningEngine) -> Arms:
        """`canary` on trial, without traffic."""
        return replace(self.without_trial(), canary=canary)

    def without_trial(self) -> Arms:
        """All users on the stable engine."""
        return replace(self, canary=None, weight=0, mirror=0)

    def promoted(self) -> Arms:
        """The canary serves everybody; the old stable waits, and who waited before it goes.

        Raises:
            NotPossible: when there is no canary, or it is dead.
        """
        canary = self._trial("promote")
        return Arms(stable=canary, previous=self.stable)

    def shifted(self, *, weight: int) -> Arms:
        """That percent of users on the canary.

        Raises:
            NotPossible: when there is no canary to take them.
        """
        # Taking users away from a canary is always possible, also from one that is dead.
        if weight:
            self._trial(f"shift {weight} % of users to")
        require_percent(weight)
        return replace(self, weight=weight)

    def mirrored(self, *, percent: int) -> Arms:
        """That percent of requests copied to the canary.

        Raises:
            NotPossible: when there is no canary to take them.
        """
        if percent:
            self._trial(f"mirror {percent} % of requests to")
        require_percent(percent)
        return replace(self, mirror=percent)

    def rolled_back(self, to: str | None) -> Arms:
        """All users on version `to`, which is the stable one (None) or the one before it.

        Raises:
            NotPossible: when no engine of that version is warm.
        """
        if to is None or (self.stable and self.stable.engine.version == to):
            return self.without_trial()
        # The canary is not asked: going back to what is on trial is no way back.
        if self.previous and self.previous.engine.version == to:
            if not self.previous.alive:
                raise NotPossible(f"version {to} is down, being restarted", detail=self.previous.tail())
            return Arms(stable=self.previous)
        warm = " and ".join(running.engine.version for role, running in self if role is not Role.CANARY)
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    def _trial(self, wish: str) -> RunningEngine:
        if self.canary is None:
            raise NotPossible(f"there is no canary to {wish}", hint="deploy one first")
        if not self.canary.alive:
            version = self.canary.engine.version
            raise NotPossible(f"the canary, version {version}, died: cannot {wish} it", detail=self.canary.tail())
        return self.canary


def routes(arms: Arms) -> Routes:
    """What the proxy must do for these arms; a canary that is dead is not on the map."""
    canary = arms.canary if arms.canary and arms.canary.alive else None
    return Routes(
        stable=_upstream(Role.STABLE, arms.stable),
        canary=_upstream(Role.CANARY, canary),
        previous=_upstream(Role.PREVIOUS, arms.previous),
        weight=arms.weight if canary else 0,
        mirror=arms.mirror if canary else 0,
    )


def state(region: str, arms: Arms, *, entry: str, proxy_alive: bool) -> RegionState:
    """The arms as an outsider sees them."""
    seen = {role: _arm(role, running) for role, running in arms}
    problems = [f"{arm.role} (version {arm.version}) is down" for arm in seen.values() if not arm.ready]
    if not proxy_alive:
        problems.insert(0, "the proxy is down")
    return RegionState(
        region=region,
        phase=_phase(arms, healthy=not problems),
        entry=entry,
        stable=seen.get(Role.STABLE),
        canary=seen.get(Role.CANARY),
        previous=seen.get(Role.PREVIOUS),
        warm=tuple(arm.version for role, arm in seen.items() if role is Role.PREVIOUS and arm.ready),
        weight=arms.weight,
        mirror=arms.mirror,
        problem="; ".join(problems) or None,
    )


def require_percent(number: int) -> None:
    """Of users or of requests.

    Raises:
        NotPossible: it is not from 0 to 100.
    """
    if not 0 <= number <= 100:
        raise NotPossible(f"{number} is no percentage", hint="0 to 100")


def _phase(arms: Arms, *, healthy: bool) -> Phase:
    if arms.stable is None:
        return Phase.EMPTY
    # Before the trial: whoever waits for a region to be well must not have to look at each engine.
    if not healthy:
        return Phase.DEGRADED
    return Phase.TRIAL if arms.canary else Phase.STEADY


def _upstream(role: Role, running: RunningEngine | None) -> Upstream | None:
    return Upstream(role=role, version=running.engine.version, port=running.port) if running else None


def _arm(role: Role, running: RunningEngine) -> Arm:
    alive = running.alive
    return Arm(
        role=role,
        version=running.engine.version,
        digest=running.engine.digest,
        url=running.url,
        ready=alive,
        problem=None if alive else running.tail() or "it died without a word",
    )
