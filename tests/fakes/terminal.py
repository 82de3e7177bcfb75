"""A command's terminal: what is piped into it, and what a person gets when it runs in this process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest


def pipe_in(monkeypatch: pytest.MonkeyPatch, lines: Iterable[bytes]) -> None:
    """What the next command of this process reads."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"".join(line + b"\n" for line in lines))))


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its data, when it was asked for `--output json`."""
        return json.loads(self.out)


Tidegate = Callable[..., Said]
"""Runs one command, given its words."""
