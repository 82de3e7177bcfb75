"""What is remembered of a user's request, a line of `traffic/<name>.jsonl` without its prompt and its answer; and how
such a file is followed while it grows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from tidegate.core.errors import OutsideError
from tidegate.core.model import Value

Failure = Literal["", "connect", "timeout", "status", "cut", "protocol"]
"""Classes of failure: no connection, no byte in time, a status that is not 2xx, a stream that began and did not end,
an error within the stream. The prompt and the answer are never written down."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RequestRecord(Value):
    """One user request, written once it is over."""

    started: Seconds
    """Unix time in seconds."""
    region: str
    role: str = ""
    """From the answer's headers, as is `version`; empty when no answer came."""
    version: str = ""
    status: int = 0
    """The HTTP status; 0 when no answer came."""
    ok: bool
    """A 2xx whose stream ended with `[DONE]`."""
    cut: bool = False
    """The stream began and did not end."""
    error: Failure = ""
    ttft_seconds: Seconds | None = None
    """From sending the request to the first token; None when none came."""
    itl_mean_seconds: Seconds | None = None
    """Mean time between tokens after the first; None when there were fewer than two."""
    duration_seconds: Seconds
    output_tokens: int = 0

    @property
    def ended(self) -> float:
        """Unix time in seconds: a request belongs to the window in which it ended."""
        return self.started + self.duration_seconds

    @property
    def refused(self) -> bool:
        """Answered with a 4xx."""
        return 400 <= self.status < 500


class RecordReader:
    """Follows one file: each call reads what was appended since the last."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """`offset` is where to begin, in bytes; it must be the start of a line."""
        self.path = path
        self.offset = offset

    def read_new(self) -> list[RequestRecord]:
        """The records appended since the last call; a line without its end waits for the next.

        Raises:
            OutsideError: when the file is not there, or a complete line is no record.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError as error:
            raise OutsideError(
                f"cannot read the load's records {self.path}: {error.strerror}",
                hint="check that the state folder is there and readable",
            ) from error
        # The load writes while we read: its last line may be half there.
        whole = data[: data.rfind(b"\n") + 1]
        found = [self._parse(line) for line in whole.splitlines() if line.strip()]
        self.offset += len(whole)
        return found

    def _parse(self, line: bytes) -> RequestRecord:
        try:
            return RequestRecord.model_validate_json(line)
        except ValidationError as error:
            raise OutsideError(
                f"{self.path} has a line that is no record", hint="is another program writing to it?", detail=str(error)
            ) from error
