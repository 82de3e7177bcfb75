"""What process 1 tells the gate before vLLM starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Orders:
    """Everything the gate needs to know."""

    channel: int
    """The file descriptor of its end of the channel."""
    warm_up: tuple[int, ...] = (1,)
    """Batch sizes that are asked once before the engine is ready."""
    warm_up_seconds: float = 600.0
    """For each of these batches."""
    health_every_seconds: float = 10.0
    health_within_seconds: float = 10.0
    json_logs: bool = True
    engine: Mapping[str, object] = field(default_factory=dict)
    """What `/tidegate/status` says of the engine beside the gate's own state."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Orders:
        return cls(**json.loads(text))
