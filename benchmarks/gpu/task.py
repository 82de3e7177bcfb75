"""What a part is given: models, an accelerator, a folder for its state, and the time that it may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine_images.accelerators import Accelerator

TOTAL_SECONDS = 2400.0
"""Of everything, the engine environment included."""

SHARES = {"starts": 19, "throughput": 8, "misses": 4, "fit": 2, "delivery": 7}
"""Of the time, by part, in the order in which they run; what one leaves over is the later ones'."""


@dataclass(frozen=True)
class TimeLimit:
    """How long something may take, counted from when this was made."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "began", self.clock())

    @property
    def left(self) -> float:
        """Seconds; below 0 once it is over."""
        return self.seconds - (self.clock() - self.began)


def part_seconds(part: str, waiting: Sequence[str], left: float) -> float:
    """What of `left` seconds the next part may take, so that each of those that wait behind it keeps its share."""
    return left * SHARES[part] / sum(SHARES[each] for each in {part, *waiting})


@dataclass(frozen=True)
class Task:
    """What is to be measured."""

    models: Mapping[str, Path]
    """Hugging Face directories by the name under which they are told."""
    accelerator: Accelerator
    small: bool
    """Few runs, few changes: whether it works, and no more."""
    runs: int
    """Starts of each kind."""
    state: Path
    """Built engines, logs, registered models."""
    demo_models: Path
    """Where the versions of the demo lie, or are made."""
    limit: TimeLimit

    @property
    def on_cpu(self) -> bool:
        """Whether there is no GPU to measure."""
        return self.accelerator is Accelerator.CPU

    @property
    def first(self) -> Path:
        """The model of those parts that need only one."""
        return next(iter(self.models.values()))
