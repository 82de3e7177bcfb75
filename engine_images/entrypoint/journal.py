"""What an engine says of itself: one line of its log for each event, and the exit code with which it ends.

Never what users ask or what it answers.

{"time": "2026-11-21T16:30:00.120Z", "level": "info", "event": "ready", "seconds": 18.2}

Exit codes: 0 when it was told to end and every open answer was finished, 8 when some were still open at the end of the
grace period and got an error, 1 for a bug of ours, with its traceback; every other end is an `Exit` with its code.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone

ENDED = 0
CUT = 8


class Exit(Exception):
    """The engine ends; the message is one line that says why."""

    code = 1


class BadSettings(Exit):
    """An option, or the manifest, cannot be read."""

    code = 2


class NotAsBuilt(Exit):
    """A file or the signature is not what the manifest or the key says."""

    code = 3


class OutsideMissing(Exit):
    """The artifact store, the disk or the port."""

    code = 4


class DidNotStart(Exit):
    """vLLM died, or was not ready in time, or did not answer its warm-up."""

    code = 6


class Died(Exit):
    """vLLM ended while it served."""

    code = 7


class EventLog:
    """Writes events to stderr, as JSON or to be read by a person at a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        self._stream = sys.stderr
        self._as_json = as_json

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")  # noqa: UP017 (3.10)
        if self._as_json:
            line = json.dumps({"time": time, "level": level, "event": event, **fields}, default=str)
        else:
            line = " ".join(
                [f"{time} tidegate {level}: {event}", *(f"{name}={value}" for name, value in fields.items())]
            )
        # One write a line: vLLM writes to the same stream.
        self._stream.write(line + "\n")
        self._stream.flush()
