"""Blocks that sweeps have measured, in a file of JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from pipelines.load.model import SweepBlock
from tidegate.core.files import read_text
from tidegate.core.spec import Problem, SpecError
from tidegate.core.text import lines_of


class SweepFile:
    """A `SweptBlocks`."""

    def __init__(self, path: Path) -> None:
        """It need not be there yet."""
        self.path = path

    def blocks(self) -> Sequence[SweepBlock]:
        """All of them, oldest first; the beginning of one whose write was cut off is none.

        Raises:
            SpecError: a line is no block.
        """
        if not self.path.exists():
            return ()
        whole, _, _ = read_text(self.path).rpartition("\n")
        return [self._block(line, number) for number, line in enumerate(lines_of(whole), start=1)]

    def add(self, block: SweepBlock) -> None:
        """Keep one more before this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # After a write that was cut off, so that its beginning spoils no other line.
        kept = self.path.read_bytes() if self.path.exists() else b""
        with self.path.open("r+b" if kept else "wb") as file:
            file.truncate(kept.rfind(b"\n") + 1)
            file.seek(0, 2)
            file.write(block.model_dump_json().encode() + b"\n")

    def _block(self, line: str, number: int) -> SweepBlock:
        try:
            return SweepBlock.model_validate_json(line)
        except ValidationError as error:
            expected = "a block that a sweep has measured; remove the file to measure again"
            raise SpecError([Problem(str(self.path), number, "", "something else", expected)]) from error
