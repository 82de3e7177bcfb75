"""One start of an engine on the way to a proof: what it is told, and what is known of it afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine_images.compile.logprobs import Scored
from engine_images.compile.proof import Started
from engine_images.compile.start_log import read_start_log
from engine_images.manifest import CACHE_FOLDER, CompileKey
from engine_images.model import LaunchCommand
from engine_images.ports import Scorer, Servers

KEY_VARIABLE = "TIDEGATE_COMPILE_KEY"
"""Our plugin for vLLM writes vLLM's own key, factor by factor, into the file of this name."""


@dataclass(frozen=True)
class Attempt:
    """What a start is told beside the engine's own settings."""

    what: str
    """`cold`, `eager` or `built`."""
    folder: Path
    """For its log and its key."""
    run: Path
    """The engine's own folder."""
    arguments: tuple[str, ...] = ()
    """Added to vLLM's."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """Everything that the engine said."""
        return self.folder / f"{self.what}.log"

    @property
    def key(self) -> Path:
        """Where vLLM's own key is written."""
        return self.folder / f"{self.what}.key.json"

    @property
    def cache(self) -> Path:
        """The compile cache as this start left it."""
        return self.run / CACHE_FOLDER

    async def make(
        self, launch: LaunchCommand, servers: Servers, scorer: Scorer, model: str, prompts: Sequence[str]
    ) -> tuple[Started, tuple[Scored, ...]]:
        """Start, ask for the prompts' probabilities, end it in good order.

        Raises:
            OutsideError: it did not start, or did not answer.
        """
        self._clear()
        # The person's own VLLM_LOGGING_LEVEL may hide what the proof reads.
        environment = {"VLLM_LOGGING_LEVEL": "INFO", **launch.environment, KEY_VARIABLE: str(self.key)}
        told = launch.model_copy(update={"environment": environment})
        server = await servers.start(told, self.log)
        try:
            answers = await scorer.score(server.url, model, prompts)
            memory = server.memory_bytes()
        finally:
            await server.stop()
        return self.told(seconds=server.seconds, memory_bytes=memory), answers

    def told(self, *, seconds: float = 0, memory_bytes: int = 0) -> Started:
        """What log and key say of this start; also of one that failed."""
        log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        key = CompileKey(factors=json.loads(self.key.read_bytes())) if self.key.exists() else None
        return Started(log=read_start_log(log), seconds=seconds, memory_bytes=memory_bytes, key=key)

    def _clear(self) -> None:
        shutil.rmtree(self.run, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in (self.log, self.key):
            file.unlink(missing_ok=True)
