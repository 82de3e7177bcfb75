"""What the proxy of a region must do for its arms."""

from __future__ import annotations

from rollouts.arms import Arms
from rollouts.local.xds import Routes, Upstream
from rollouts.model import Role
from rollouts.ports import RunningEngine


def routes(arms: Arms[RunningEngine]) -> Routes:
    """What the proxy must do for these arms; a canary that is dead is not on the map."""
    canary = arms.canary if arms.canary and arms.canary.alive else None
    return Routes(
        stable=_upstream(Role.STABLE, arms.stable),
        canary=_upstream(Role.CANARY, canary),
        previous=_upstream(Role.PREVIOUS, arms.previous),
        weight=arms.weight if canary else 0,
        mirror=arms.mirror if canary else 0,
    )


def _upstream(role: Role, running: RunningEngine | None) -> Upstream | None:
    return Upstream(role=role, version=running.engine.version, port=running.port) if running else None
