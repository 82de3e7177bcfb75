"""Keeps every event of a delivery in a file: more of them than the ledger has, for the report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipelines.ports import Event


class EventFile:
    """A listener that appends JSON lines."""

    def __init__(self, path: Path) -> None:
        """The folder of `path` is made when it is not there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def on_event(self, event: Event) -> None:
        """Append one line, and hand it to the system at once."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(event.model_dump_json() + "\n")

    def read(self) -> Iterable[Event]:
        """All events so far; a last line that a crash cut short is left out."""
        if not self.path.exists():
            return
        # As bytes: text would also be split at characters that only look like the end of a line, and a
        # crash may have cut a character in half.
        for line in self.path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield Event.model_validate_json(line)
