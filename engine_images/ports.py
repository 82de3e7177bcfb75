"""What a build needs from the world: somebody who runs an engine, and somebody who asks it for probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from engine_images.compile.logprobs import Scored
from engine_images.model import LaunchCommand


class Server(Protocol):
    """An engine that was started and answers."""

    url: str
    """Without `/v1`."""
    seconds: float
    """From the process' start until its first answer."""

    def memory_bytes(self) -> int:
        """Proportional set size of all its processes."""
        ...

    async def stop(self) -> None:
        """End it in good order."""
        ...


class Servers(Protocol):
    """Runs engines on this machine, one at a time for a build."""

    async def start(self, launch: LaunchCommand, log: Path) -> Server:
        """Return once it answers; `log` gets everything that it says.

        Raises:
            OutsideError: when it died or never answered; nothing is left running.
        """
        ...


class Scorer(Protocol):
    """Asks an engine how likely tokens are."""

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[Scored, ...]:
        """The prompts' tokens and a short greedy answer to each, in the order of `prompts`.

        Raises:
            OutsideError: when the engine does not answer.
        """
        ...
