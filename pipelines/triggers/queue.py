"""The log of delivery requests in one file, which outlives the process."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import ValidationError

from pipelines.requests import RequestLog
from tidegate.core.errors import Refused
from tidegate.core.files import lock_open_file, write_atomically


class RequestFile:
    """Held by one process at a time: two that reconcile one file would start everything twice."""

    def __init__(self, folder: Path) -> None:
        """Read it, or begin one.

        Raises:
            Refused: another process has it, or it is no such file.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "requests.json"
        self._lock = (folder / "lock").open("ab")
        if not lock_open_file(self._lock):
            self._lock.close()
            raise Refused(f"{folder} is locked", hint="another `tidegate serve` uses it")
        self.log = RequestLog()
        if self._path.exists():
            try:
                self.log = RequestLog.model_validate_json(self._path.read_bytes())
            except ValidationError as error:
                self._lock.close()
                hint = "remove it: what carries the alias is found in the registry again"
                raise Refused(f"{self._path} cannot be read", hint=hint) from error

    def write(self, log: RequestLog) -> None:
        """Returns once the disk has it; raises TidegateError where it has not, and nothing is changed."""
        write_atomically({self._path: log.model_dump_json()})
        self.log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
