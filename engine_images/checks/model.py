"""What stands in the way of serving a model version."""

from __future__ import annotations

from tidegate.core.model import Value


class Obstacle(Value):
    """One reason why a model version cannot be served as the settings say."""

    where: str
    """A file of the version (`config.json`), or a part of the spec (`engine.vllm.args.max-model-len`)."""
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.where}: found {self.found}; expected {self.expected}"
