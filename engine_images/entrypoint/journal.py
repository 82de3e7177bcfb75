"""What an engine says of itself, one line an event. Never what users ask or what it answers.

{"time": "2026-11-21T16:30:00.120Z", "level": "info", "event": "ready", "seconds": 18.2}
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import TextIO

Field = object


class Journal:
    """Writes events to a stream, as JSON or to be read by a person at a terminal."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._as_json = as_json

    def info(self, event: str, **fields: Field) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Field) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Field) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Field]) -> None:
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
