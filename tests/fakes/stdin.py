"""Standard input as a command finds it when something is piped into it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable

import pytest


def pipe_in(monkeypatch: pytest.MonkeyPatch, lines: Iterable[bytes]) -> None:
    """What the next command of this process reads."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"".join(line + b"\n" for line in lines))))
