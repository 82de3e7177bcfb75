"""What a person at a terminal gets from a command that runs in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
