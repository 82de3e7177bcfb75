"""What a build needs from the world: somebody who starts what is built, who runs it and who asks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine_images.build.model import BuildRequest
from engine_images.build.proof import (
    Agreement,
    EngineStart,
    GoldenEffect,
    QuantizationEffect,
    ScoredPrompt,
)
from engine_images.manifest import CACHE_FOLDER, CompileKey
from engine_images.model import LaunchCommand

Progress = Callable[[str], None]


@dataclass(frozen=True)
class StartAttempt:
    """One start of a build, and where it leaves what is known of it."""

    what: str
    """`cold`, `eager`, `built`, or `original`: eagerly and without quantization, after `eager`."""
    folder: Path
    """For its log and its key; an eager start leaves here what the one after it is compared with."""
    run: Path
    """The engine's own folder."""
    arguments: tuple[str, ...] = ()
    """Added to vLLM's."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """The compile cache as this start left it."""
        return self.run / CACHE_FOLDER


@dataclass(frozen=True)
class StartResult:
    """What a start showed."""

    start: EngineStart
    agreement: Agreement | None = None
    """With the eager start before it; None where there was none, or when it did not answer."""
    rebuilt: int = 0
    """Kernels that were built although there was a cache."""
    quantization: QuantizationEffect | None = None
    """What quantization changed, of an `original` start."""
    golden: GoldenEffect | None = None
    """The same on a golden set, where one was asked."""


class BuildRunner(Protocol):
    """Starts what a build makes in a fresh process."""

    async def key(self, request: BuildRequest, folder: Path) -> CompileKey:
        """What this machine says of everything that the compiled model depends on; `folder` is for its use.

        Raises:
            EnvironmentMissing: the engine environment does not answer.
        """
        ...

    async def start(self, request: BuildRequest, root: Path, attempt: StartAttempt) -> StartResult:
        """Start the engine at `root`, ask it, and end it in good order.

        Raises:
            TidegateError: it did not start, or did not answer.
        """
        ...


class EngineServer(Protocol):
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


class EngineServers(Protocol):
    """Runs engines on this machine, one at a time for a build."""

    async def start(self, launch: LaunchCommand, log: Path) -> EngineServer:
        """Return once it answers; `log` gets everything that it says.

        Raises:
            OutsideError: when it died or never answered; nothing is left running.
        """
        ...


class LogprobScorer(Protocol):
    """Asks an engine how likely tokens are."""

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
        """The prompts' tokens and a short greedy answer to each, in the order of `prompts`.

        Raises:
            OutsideError: when the engine does not answer.
        """
        ...


class GoldenSet(Protocol):
    """Prompts whose good answers are known."""

    async def scores(self, url: str, model: str) -> Mapping[str, float]:
        """By prompt how good an engine's greedy answer is, 0 to 1.

        Raises:
            OutsideError: when the engine does not answer.
        """
        ...
