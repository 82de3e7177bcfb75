"""Pauses and aborts within one reconciliation: what it adds and removes, and the status that makes.

Upstream: `rollout/pause.go`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fakes.argo.objects import Rollout, moment_of, stamp

from rollouts.kube.model import Json

CANARY_STEP = "CanaryPauseStep"
BLUE_GREEN = "BlueGreenPause"
INCONCLUSIVE = "InconclusiveAnalysisRun"

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Pauses:
    """`pauseContext`."""

    def __init__(self, rollout: Rollout, now: datetime) -> None:
        self._rollout = rollout
        self._now = now
        self._added: list[str] = []
        self._removed: set[str] = set()
        self._cleared = self._abort = self._unabort = False
        self.message = ""
        """Why it was aborted in this reconciliation."""

    @property
    def aborted(self) -> bool:
        return not self._unabort and (self._abort or self._rollout.aborted)

    @property
    def adds(self) -> bool:
        return bool(self._added)

    def abort(self, message: str) -> None:
        self._abort, self.message = True, message

    def unabort(self) -> None:
        self._unabort = True

    def add(self, reason: str) -> None:
        self._added.append(reason)

    def remove(self, reason: str) -> None:
        self._removed.add(reason)

    def clear(self) -> None:
        self._cleared = True

    def condition(self, reason: str) -> Json | None:
        return next((one for one in self._rollout.status.get("pauseConditions", ()) if one["reason"] == reason), None)

    def ends(self, reason: str, seconds: int) -> datetime | None:
        """When a pause of `seconds` is over; None when it has not begun."""
        found = self.condition(reason)
        return moment_of(found["startTime"]) + timedelta(seconds=seconds) if found else None

    def step_completed(self, pause: Json) -> bool:
        """`CompletedCanaryPauseStep`: somebody took the pause away, or its duration is over."""
        if self._rollout.status.get("controllerPause") and self.condition(CANARY_STEP) is None:
            return True
        ends = self.ends(CANARY_STEP, seconds_of(pause["duration"])) if pause.get("duration") else None
        return ends is not None and self._now >= ends

    def write(self, status: Json) -> None:
        """`CalculatePauseStatus`: an abort ends every pause; `abortedAt` is when it was seen first."""
        status.pop("abort", None)
        status.pop("abortedAt", None)
        if self._abort or self.aborted:
            status["abort"] = True
            status["abortedAt"] = self._rollout.status.get("abortedAt") or stamp(self._now)
            return
        if self._cleared:
            return
        old = self._rollout.status.get("pauseConditions") or []
        conditions = [one for one in old if one["reason"] not in self._removed]
        reasons = {one["reason"] for one in old}
        new = [reason for reason in dict.fromkeys(self._added) if reason not in reasons]
        conditions += [{"reason": reason, "startTime": stamp(self._now)} for reason in new]
        if conditions:
            status["controllerPause"] = bool(new) or bool(self._rollout.status.get("controllerPause"))
            status["pauseConditions"] = conditions


def seconds_of(duration: str | int) -> int:
    """A pause's duration: seconds as a number, or text such as `30s`, `10m`, `1h` (`RolloutPause.DurationSeconds`)."""
    text = str(duration)
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)
