"""The files of a fleet host below the state folder, and who lives there: the host, and whoever carries a delivery.

The kernel releases a file lock when its holder ends in any way, kill -9 included. A delivery that many processes
carry one after the other holds no lock between two of them; it leaves a lease, which each of them renews. A process
that hangs, or was stopped, keeps its lock: only its missing heartbeat shows it, by the host's own clock.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rollouts.model import CarrierHeartbeat
from tidegate.core.clock import Clock
from tidegate.core.files import is_locked, replace_file
from tidegate.core.units import format_duration

LOCK = "delivery.lock"
"""Below the state folder."""
LEASE = "delivery.lease"
"""Next to the lock: until when, in ISO 8601."""


class Layout:
    """The paths of one state folder; absolute, because processes elsewhere read them."""

    def __init__(self, state: Path) -> None:
        self.state = state.absolute()
        self.fleet = self.state / "fleet"
        self.lock = self.fleet / "host.lock"
        """Held by the one fleet host."""
        self.record = self.fleet / "host.json"
        """Says how to reach the host that is up; gone when there is none."""
        self.failure = self.fleet / "host.error.json"
        """Why the last host did not come up."""
        self.logs = self.fleet / "logs"
        """One file for each start of an engine, and one of the host."""
        self.log = self.logs / "host.log"
        self.prometheus = self.fleet / "prometheus"
        """Configuration and data of Prometheus."""

    def way_back(self, region: str) -> Path:
        """The engine that served before the delivery that is open there; gone while none is."""
        return self.fleet / "way-back" / f"{region}.json"

    def proxy(self, region: str) -> Path:
        """Configuration and log of a region's proxy."""
        return self.fleet / "regions" / region


def replace_json(path: Path, data: Any) -> None:
    """Put `data` at `path` in one step, as JSON."""
    replace_file(path, json.dumps(data, indent=1))


def holder(lock: Path) -> int | None:
    """The process that holds the lock, as it wrote there; None when none says so."""
    try:
        text = lock.read_text(encoding="ascii")
    except (FileNotFoundError, ValueError):
        return None
    return int(text) if text.isdecimal() and is_locked(lock) else None


def lend(state: Path, until: datetime) -> None:
    """Let a canary stay until then, though no process may hold the lock."""
    state.mkdir(parents=True, exist_ok=True)
    # Half a moment would look like none.
    replace_file(state / LEASE, until.isoformat())


def end_lease(state: Path) -> None:
    """The delivery that left it is over; also right when there is none."""
    (state / LEASE).unlink(missing_ok=True)


def delivery_runs(state: Path) -> bool:
    """Whether a process holds the delivery lock of this state folder now, or will come back to its canary."""
    with suppress(FileNotFoundError, ValueError):
        if datetime.fromisoformat((state / LEASE).read_text(encoding="ascii")) > datetime.now(UTC):
            return True
    return is_locked(state / LOCK)


class HeartbeatMonitor:
    """The last sign of life of one machine's delivery."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at, self._process = 0.0, 0
        self.last: CarrierHeartbeat | None = None
        """What was heard last; None where nobody carries a delivery, or does not say so."""

    def record(self, who: str, unattended_seconds: float, *, process: int) -> None:
        """Note a heartbeat of `who`, as that process; trials end once it is silent for `unattended_seconds`."""
        self._process, self._at = process, self._clock.monotonic()
        self.last = CarrierHeartbeat(who=who, heard=self._clock.now(), unattended_seconds=unattended_seconds)

    def clear(self) -> None:
        """Forget the last heartbeat: no process carries the delivery any more."""
        self.last = None

    def silence(self, process: int | None) -> str:
        """That nothing was heard of that process for longer than allowed, as people are told; empty when something was.

        Of a process that never said a word its lock alone tells, and nobody is taken for the one before.
        """
        last, silent = self.last, self._clock.monotonic() - self._at
        if last is None or self._process != process or silent <= last.unattended_seconds:
            return ""
        return f"nothing was heard of {last.who} for {format_duration(timedelta(seconds=last.unattended_seconds))}"
