"""What a process is asked to do, as it comes in on stdin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """One trial of one model."""

    factory: str
    """`MODULE:FUNCTION` or `PATH.py:FUNCTION`."""
    shapes: list[list[int]]
    """Empty for a factory that returns its inputs."""
    device: str
    """`cpu`, `cuda`, or `auto`: a GPU when torch sees one."""
    mode: str | None
    """Of torch.compile; None runs eagerly."""
    dynamic: bool | None
    fullgraph: bool
    repeats: int
    """Calls a shape that are measured."""
    spawned: float
    """Of the monotonic clock, when this process was started."""
    workdir: str
    """Exists. Eager outputs are kept here, and `result.json`."""
    save: str | None = None
    """A folder that does not exist yet, for the cache."""
    load: str | None = None
    """The folder of a saved cache."""

    @classmethod
    def read(cls, data: dict[str, Any]) -> Job:
        """From JSON of exactly these fields."""
        return cls(**data)
