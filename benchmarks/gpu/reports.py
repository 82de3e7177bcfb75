"""The JSON of a part: written again with everything that is added to it, so that a part that is ended leaves it too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu.task import TimeLimit
from tidegate.core.errors import TidegateError

MEASURED, FAILED, RUNNING = "measured", "failed", "running"


class PartReport:
    """What one part found, what it left out and why, and what went wrong."""

    def __init__(self, file: Path, head: Mapping[str, Any]) -> None:
        """`head` says what is measured, and on what."""
        self._file = file
        self._content: dict[str, Any] = {**head, "state": RUNNING, "left_out": {}, "errors": {}, "found": {}}
        self._write()

    def head(self, name: str, value: Any) -> None:
        """Say more of what is measured, and on what."""
        self._content[name] = value
        self._write()

    def put(self, name: str, value: Any) -> None:
        """Add a finding, or replace it by what is known now."""
        self._content["found"][name] = value
        self._write()

    def leave_out(self, what: str, why: str) -> None:
        """Say what is not measured."""
        self._content["left_out"][what] = why
        self._write()

    def fail(self, what: str, error: BaseException) -> None:
        """Say what went wrong."""
        self._content["errors"][what] = f"{type(error).__name__}: {error}"
        self._write()

    @contextmanager
    def going_on(self, what: str) -> Iterator[None]:
        """An error in here is written down, and ends nothing else."""
        try:
            yield
        except (TidegateError, OSError, ValueError) as error:
            self.fail(what, error)

    def end(self, seconds: float) -> None:
        """All is measured that can be; without an error it is not measured again."""
        state = FAILED if self._content["errors"] else MEASURED
        self._content |= {"state": state, "seconds": round(seconds, 1)}
        self._write()

    def _write(self) -> None:
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(self._content, indent=2) + "\n", encoding="utf-8")
        partial.replace(self._file)


def read_report(file: Path) -> dict[str, Any]:
    """What a part left; nothing where it has not run, or where that is no JSON."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_measured(file: Path) -> bool:
    """Whether the part that writes `file` need not run again."""
    return read_report(file).get("state") == MEASURED


def close(file: Path, part: str, why: str) -> None:
    """Note of a part that could not end itself why it is not measured, next to what it had found until then."""
    content = read_report(file) or {"part": part}
    content["state"] = FAILED
    content["errors"] = {**content.get("errors", {}), part: why}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def rounds(report: PartReport, limit: TimeLimit, count: int, what: str) -> Iterator[int]:
    """Numbers from 0 while there is time for a round as long as the longest before; those left out are noted."""
    longest = 0.0
    for number in range(count):
        if longest > limit.left:
            names = f"{what} {number + 1} to {count}" if number + 1 < count else f"{what} {count}"
            report.leave_out(names, f"one takes {longest:.0f} s, and {max(limit.left, 0):.0f} s were left")
            return
        before = limit.left
        yield number
        longest = max(longest, before - limit.left)
