"""When a pause ends by itself (`rollout/pause.go` of argo-rollouts)."""

from __future__ import annotations

import re

from rollouts.argo.model import PauseReason, Rollout
from rollouts.kube.model import Json

GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def ends_by_itself(rollout: Json) -> bool:
    """Whether every pause that holds it has an end in time: a step's `duration`, blue-green's own."""
    seen = Rollout(rollout)
    if seen.paused_by_spec or not seen.pause_conditions:
        return False
    return all(_timed(seen, str(condition.get("reason"))) for condition in seen.pause_conditions)


def pause_seconds(duration: object) -> float | None:
    """`RolloutPause.DurationSeconds`: a number of seconds, or a duration of Go such as `1h30m`; None for no end."""
    if duration is None:
        return None
    text = str(duration)
    if text.isdecimal():
        return float(text)
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * GO_UNITS[unit] for number, unit in parts)


def _timed(seen: Rollout, reason: str) -> bool:
    if reason == PauseReason.STEP and seen.step:
        return pause_seconds((seen.step.get("pause") or {}).get("duration")) is not None
    if reason == PauseReason.BLUE_GREEN and seen.blue_green is not None:
        return bool(seen.blue_green.get("autoPromotionSeconds"))
    return False
