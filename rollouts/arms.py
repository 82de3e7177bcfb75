"""The engines of a region by role, and what each operation makes of them. Pure: every step returns new arms.

The same rules for the fleet of this machine and for fleets that others bring (`rollouts.base`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from rollouts.errors import NotPossible
from rollouts.model import EngineSet, RegionPhase, RegionState, Role, require_percent


class EngineIdentity(Protocol):
    """Which model version an engine serves."""

    @property
    def version(self) -> str:
        """The model version in the registry."""
        ...

    @property
    def digest(self) -> str:
        """Over the version's files; empty where it is not known."""
        ...


class ArmEngine(Protocol):
    """An engine that plays a role: what the rules ask of it."""

    @property
    def engine(self) -> EngineIdentity:
        """What it serves."""
        ...

    @property
    def url(self) -> str:
        """Its own address, past the proxy."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        ...

    def tail(self) -> str:
        """The last lines of its log."""
        ...


Arm = TypeVar("Arm", bound=ArmEngine)


@dataclass(frozen=True)
class Arms(Generic[Arm]):
    """The engines of a region by role, and how users are spread over them."""

    stable: Arm | None = None
    canary: Arm | None = None
    previous: Arm | None = None
    weight: int = 0
    """Percent of users on the canary."""
    mirror: int = 0
    """Percent of users' requests copied to the canary."""

    def __iter__(self) -> Iterator[tuple[Role, Arm]]:
        for role in Role:
            running: Arm | None = getattr(self, role)
            if running is not None:
                yield role, running

    def running(self, version: str) -> Arm | None:
        """The engine of that version, in whatever role."""
        return next((running for _, running in self if running.engine.version == version), None)

    def serves(self, engine: EngineIdentity) -> bool:
        """Whether the engine serves as stable or canary already, so that a deploy of it changes nothing.

        Raises:
            NotPossible: its version serves other files here.
        """
        here = self.running(engine.version)
        if here and here.engine.digest not in {"", engine.digest}:
            raise NotPossible(
                f"version {engine.version} runs here already, with other files", hint="register a new version"
            )
        # The warm previous runs, but not in the role that is asked for: it must become the canary.
        return here is not None and here.alive and here is not self.previous

    def reusing(self, engine: EngineIdentity) -> Arms[Arm] | None:
        """The warm previous on trial instead of a new engine; None when it is another version, or down."""
        warm = self.previous
        if warm and warm.alive and warm.engine.version == engine.version:
            return replace(self.without_trial(), previous=None, canary=warm)
        return None

    def making_room(self) -> Arms[Arm]:
        """Before an engine starts: memory suffices for two engines per region, rarely for three."""
        return Arms(stable=self.stable)

    def started(self, running: Arm) -> Arms[Arm]:
        """A new engine is ready: stable in an empty region, else on trial without traffic."""
        return self.with_trial(running) if self.stable else replace(self, stable=running)

    def with_trial(self, canary: Arm) -> Arms[Arm]:
        """`canary` on trial, without traffic."""
        return replace(self.without_trial(), canary=canary)

    def without_trial(self) -> Arms[Arm]:
        """All users on the stable engine."""
        return replace(self, canary=None, weight=0, mirror=0)

    def promoted(self) -> Arms[Arm]:
        """The canary serves everybody; the old stable waits, and who waited before it goes. Idempotent.

        Raises:
            NotPossible: when there is no canary, or it is dead.
        """
        # A deploy retires the warm previous; one that is here without a canary means: promoted already.
        if self.previous and not self.canary:
            return self
        canary = self._trial("promote")
        return Arms(stable=canary, previous=self.stable)

    def shifted(self, *, weight: int) -> Arms[Arm]:
        """That percent of users on the canary.

        Raises:
            NotPossible: when there is no canary to take them.
        """
        # Taking users away from a canary is always possible, also from one that is dead.
        if weight:
            self._trial(f"shift {weight} % of users to")
        require_percent(weight)
        return replace(self, weight=weight)

    def mirrored(self, *, percent: int) -> Arms[Arm]:
        """That percent of requests copied to the canary.

        Raises:
            NotPossible: when there is no canary to take them.
        """
        if percent:
            self._trial(f"mirror {percent} % of requests to")
        require_percent(percent)
        return replace(self, mirror=percent)

    def rolled_back(self, to: str | None) -> Arms[Arm]:
        """All users on version `to`, which is the stable one (None) or the one before it.

        Raises:
            NotPossible: when no engine of that version is warm.
        """
        if to is None or (self.stable and self.stable.engine.version == to):
            return self.without_trial()
        # The canary is not asked: going back to what is on trial is no way back.
        if self.previous and self.previous.engine.version == to:
            if not self.previous.alive:
                raise NotPossible(
                    f"version {to} is down, being restarted",
                    hint="wait until it is up again: `tidegate status`",
                    detail=self.previous.tail(),
                )
            return Arms(stable=self.previous)
        warm = " and ".join(running.engine.version for role, running in self if role is not Role.CANARY)
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    def _trial(self, operation: str) -> Arm:
        if self.canary is None:
            raise NotPossible(f"there is no canary to {operation}", hint="deploy one first")
        if not self.canary.alive:
            version = self.canary.engine.version
            raise NotPossible(
                f"the canary, version {version}, died: cannot {operation} it",
                hint="roll it back: `tidegate rollback`; --debug shows the end of its log",
                detail=self.canary.tail(),
            )
        return self.canary


def state(region: str, arms: Arms[Arm], *, entry: str, proxy_alive: bool) -> RegionState:
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


def _phase(arms: Arms[Arm], *, healthy: bool) -> RegionPhase:
    if arms.stable is None:
        return RegionPhase.EMPTY
    # Before the trial: the one who waits for a region to be well need not poll each engine.
    if not healthy:
        return RegionPhase.DEGRADED
    return RegionPhase.TRIAL if arms.canary else RegionPhase.STEADY


def _arm(role: Role, running: ArmEngine) -> EngineSet:
    alive = running.alive
    return EngineSet(
        role=role,
        version=running.engine.version,
        digest=running.engine.digest,
        url=running.url,
        ready=alive,
        problem=None if alive else running.tail() or "it died without a word",
    )
