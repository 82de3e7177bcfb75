"""Whether a delivery is still carried by a process of this machine: its lock, its lease and its heartbeat.

The kernel releases a file lock when its holder ends in any way, kill -9 included. A delivery that many processes
carry one after the other holds no lock between two of them; it leaves a lease, which each of them renews. A process
that hangs, or was stopped, keeps its lock: only its missing heartbeat shows it, by the host's own clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from rollouts.model import CarrierHeartbeat
from tidegate.core.clock import Clock
from tidegate.core.files import is_locked, replace_file
from tidegate.core.units import format_duration

LOCK = "delivery.lock"
"""Below the state folder."""
LEASE = "delivery.lease"
"""Next to the lock: until when, in ISO 8601."""


def holder(state: Path) -> int | None:
    """The process that holds the delivery lock of this state folder, as it wrote there; None when none says so."""
    try:
        text = (state / LOCK).read_text(encoding="ascii")
    except (FileNotFoundError, ValueError):
        return None
    return int(text) if text.isdecimal() and is_locked(state / LOCK) else None


def lend(state: Path, until: datetime) -> None:
    """Let a canary stay until then, though no process may hold the lock."""
    state.mkdir(parents=True, exist_ok=True)
    # Half a moment would look like none.
    replace_file(state / LEASE, until.isoformat())


def end_lease(state: Path) -> None:
    """The delivery that left it is over; also right when there is none."""
    (state / LEASE).unlink(missing_ok=True)


def is_leased(state: Path) -> bool:
    """Whether the next process of a delivery may still come."""
    try:
        return datetime.fromisoformat((state / LEASE).read_text(encoding="ascii")) > datetime.now(UTC)
    except (FileNotFoundError, ValueError):
        return False


def delivery_runs(state: Path) -> bool:
    """Whether a process holds the delivery lock of this state folder now, or will come back to its canary."""
    return is_locked(state / LOCK) or is_leased(state)


class HeartbeatMonitor:
    """The last sign of life of one machine's delivery."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: CarrierHeartbeat | None = None
        self._at = 0.0
        self._process = 0

    @property
    def last(self) -> CarrierHeartbeat | None:
        """What was heard last; None where nobody carries a delivery, or does not say so."""
        return self._last

    def record(self, who: str, unattended_seconds: float, *, process: int) -> None:
        """Note a heartbeat of `who`, as that process; trials end once it is silent for `unattended_seconds`."""
        self._process = process
        self._last = CarrierHeartbeat(who=who, heard=self._clock.now(), unattended_seconds=unattended_seconds)
        self._at = self._clock.monotonic()

    def clear(self) -> None:
        """Forget the last heartbeat: no process carries the delivery any more."""
        self._last = None

    def silence(self, process: int | None) -> str:
        """That nothing was heard of that process for longer than allowed, as people are told; empty when something was.

        Of a process that never said a word its lock alone tells, and nobody is taken for the one before.
        """
        if self._last is None or self._process != process:
            return ""
        if self._clock.monotonic() - self._at <= self._last.unattended_seconds:
            return ""
        silent = format_duration(timedelta(seconds=self._last.unattended_seconds))
        return f"nothing was heard of {self._last.who} for {silent}"
