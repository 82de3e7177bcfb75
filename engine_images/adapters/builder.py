"""Builds an engine: compile once, start what was packed, compare it with eager, and only then keep it.

Each start is asked through the OpenAI-compatible interface how likely tokens are.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from engine_images.build.engine_root import digests_of, fixed_run_folder, import_path, serve, tidy_cache, write_root
from engine_images.build.engine_store import EngineStore, Progress
from engine_images.build.model import BuildRecord, BuildRequest, BuiltEngine
from engine_images.build.proof import (
    EngineStart,
    ScoredPrompt,
    compare,
    kernels_added,
    read_start_log,
    speedup_of,
)
from engine_images.errors import EnvironmentMissing, NotProven
from engine_images.manifest import CACHE_FOLDER, CompileKey, EngineManifest
from engine_images.model import LaunchCommand
from engine_images.oci.entrypoint_files import PACKAGE
from tidegate.core.children import Child, variables_for
from tidegate.core.errors import OutsideError
from tidegate.core.text import shortened


@dataclass(frozen=True)
class EngineServer:
    """An engine that was started and answers."""

    url: str
    """Without `/v1`."""
    seconds: float
    """From the process' start until its first answer."""
    memory_bytes: Callable[[], int]
    """Proportional set size of all its processes."""


EngineServers = Callable[[LaunchCommand, Path], AbstractAsyncContextManager[EngineServer]]
"""Starts an engine on this machine, one at a time for a build, and ends it with the context, in good order. The file
gets all that it says. Where it died or never answered that is an OutsideError, and nothing is left running."""

Score = Callable[[str, str, Sequence[str]], Awaitable[tuple[ScoredPrompt, ...]]]
"""Asks the engine at an address, by its served name, for the prompts' tokens and a short greedy answer to each."""

ANSWER_TOKENS = 16
"""Enough to pass from prefill to decode, which runs other kernels."""
TIMEOUT_SECONDS = 120.0


async def score_prompts(url: str, model: str, prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
    """One prompt after the other: what is in a batch changes the last bits of a sum.

    Raises:
        OutsideError: when the engine does not answer.
    """
    # The engine is on this machine, whatever proxy the environment has for the world outside.
    async with httpx.AsyncClient(base_url=f"{url}/v1", timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        return tuple([await _score(client, model, prompt) for prompt in prompts])


async def _score(client: httpx.AsyncClient, model: str, prompt: str) -> ScoredPrompt:
    asked = {"model": model, "prompt": prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0, "logprobs": 0}
    began = time.perf_counter()
    try:
        # The last two are vLLM's own, next to what OpenAI's API has.
        answer = await client.post(
            "/completions", json=asked | {"prompt_logprobs": 0, "return_tokens_as_token_ids": True}
        )
        choice = answer.raise_for_status().json()["choices"][0]
    except httpx.HTTPError as error:
        said = shortened(error.response.text) if isinstance(error, httpx.HTTPStatusError) else error
        raise OutsideError(
            f"the engine at {client.base_url} gives no log-probabilities: {said}", hint="see its log"
        ) from error
    # For each token of the prompt its id and what is known of it.
    known: list[Mapping[str, Mapping[str, Any]] | None] = choice["prompt_logprobs"]
    return ScoredPrompt(
        prompt=tuple(float(next(iter(token.values()))["logprob"]) for token in known if token),
        answer=tuple(choice["logprobs"]["tokens"]),
        logprobs=tuple(float(value) for value in choice["logprobs"]["token_logprobs"] if value is not None),
        seconds=time.perf_counter() - began,
    )


KEY_SECONDS = 60.0


def key_of(request: BuildRequest, root: Path) -> CompileKey:
    """What the engine environment on this machine says of everything that a compiled model depends on.

    Raises:
        EnvironmentMissing: its Python does not answer.
    """
    write_root(root, EngineManifest(engine="", model=request.model, launch=request.launch), request.folder, None)
    command = [request.environment.python, "-m", PACKAGE, "key", "--root", str(root)]
    try:
        done = subprocess.run(
            command,
            env=variables_for(Child.ENGINE, os.environ) | import_path(root),
            cwd=root,
            capture_output=True,
            text=True,
            timeout=KEY_SECONDS,
            check=True,
        )
        return CompileKey(factors=json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise EnvironmentMissing(
            f"{request.environment.python} does not tell its compile key", hint="run: tidegate setup", detail=said
        ) from error


KEY_VARIABLE = "TIDEGATE_COMPILE_KEY"
"""Our plugin for vLLM writes vLLM's own key, factor by factor, into the file of this name."""

REPEATABLE = {"PYTHONHASHSEED": "0", "TIDEGATE_REPRODUCIBLE": "1"}
"""For the start that compiles: the same inputs are to give the same bytes."""
MUST_LOAD = {"VLLM_FORCE_AOT_LOAD": "1"}
"""For the start that proves: vLLM fails instead of compiling again. It is not in the key."""
EAGERLY = ("--enforce-eager",)


@dataclass(frozen=True)
class StartAttempt:
    """One start of a build, and where it leaves what is known of it."""

    what: str
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
    def key_file(self) -> Path:
        """Where vLLM's own key is written."""
        return self.folder / f"{self.what}.key.json"

    def seen(self, *, seconds: float = 0, memory_bytes: int = 0) -> EngineStart:
        """What log and key say of the start; also of one that failed."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        key = CompileKey(factors=json.loads(self.key_file.read_bytes())) if self.key_file.exists() else None
        return EngineStart(log=read_start_log(text), seconds=seconds, memory_bytes=memory_bytes, key=key)


async def start_engine(
    servers: EngineServers, score: Score, request: BuildRequest, root: Path, attempt: StartAttempt
) -> tuple[EngineStart, tuple[ScoredPrompt, ...]]:
    """Start the engine at `root` in a fresh process, ask it, and end it in good order.

    Raises:
        OutsideError: it did not start, or did not answer.
    """
    shutil.rmtree(attempt.run, ignore_errors=True)
    attempt.folder.mkdir(parents=True, exist_ok=True)
    for file in (attempt.log, attempt.key_file):
        file.unlink(missing_ok=True)
    # The person's own VLLM_LOGGING_LEVEL may hide what the proof reads.
    environment = {"VLLM_LOGGING_LEVEL": "INFO", **attempt.environment, KEY_VARIABLE: str(attempt.key_file)}
    launch = serve(request, root, attempt.run, arguments=attempt.arguments, environment=environment)
    async with servers(launch, attempt.log) as server:
        scored = await score(server.url, request.served_name, request.prompts)
        memory = server.memory_bytes()
    return attempt.seen(seconds=server.seconds, memory_bytes=memory), scored


class Builder:
    """Builds one engine after the other."""

    def __init__(
        self,
        store: EngineStore,
        servers: EngineServers,
        *,
        score: Score = score_prompts,
        key_of: Callable[[BuildRequest, Path], CompileKey] = key_of,
    ) -> None:
        """`key_of` asks the engine environment."""
        self._store = store
        self._servers = servers
        self._score = score
        self._key_of = key_of

    async def build(self, request: BuildRequest, progress: Progress) -> BuiltEngine:
        """The engine, found or built; `progress` gets a line before each long step.

        Raises:
            NotProven: the compile cache is missed, the compiled model is another one than the eager, or too slow.
            TidegateError: it did not start.
        """
        folder = self._store.work_folder(f"key-{request.model.digest[:16]}")
        key = await asyncio.to_thread(self._key_of, request, folder)
        engine = request.name(key)
        async with self._store.locked(engine, "builds this engine", progress):
            found = self._store.find(engine)
            if found and found.record.holds(request):
                return found
            if request.compiled:
                record = await self._proven(request, engine, key, progress)
            else:
                self._write(request, EngineManifest(engine=engine, model=request.model, launch=request.launch), None)
                record = BuildRecord(engine=engine, model=request.model.uri, tolerance=request.tolerance)
            return self._store.keep(record)

    async def _proven(self, request: BuildRequest, engine: str, key: CompileKey, progress: Progress) -> BuildRecord:
        """What the build of a compiled engine found out."""
        name = request.compile_name(key)
        async with self._store.locked(name, "compiles the same model", progress):
            cold = self._store.compiled(name) or await self._compile(request, name, progress)
        cache, folder, root = self._store.cache(name), self._store.work_folder(engine), self._store.root(engine)
        digests = await asyncio.to_thread(digests_of, cache)
        manifest = EngineManifest(engine=engine, model=request.model, launch=request.launch, key=key, cache=digests)
        self._write(request, manifest, cache)
        progress("starting it eagerly, to compare with")
        eagerly = StartAttempt("eager", folder, folder / "eager", EAGERLY)
        eager, expected = await start_engine(self._servers, self._score, request, root, eagerly)
        attempt = StartAttempt("built", folder, folder / "built", environment=MUST_LOAD)
        rebuilt, agreement = 0, None
        progress("starting what was built")
        try:
            built, scored = await start_engine(self._servers, self._score, request, root, attempt)
        except OutsideError:
            # Told to fail instead of compiling again, it did: its log and its key say why.
            built = attempt.seen()
            if built.log.init_seconds is not None or built.key is None:
                raise
        else:
            built = built.model_copy(update={"speedup": speedup_of(scored, expected)})
            agreement = compare(expected, scored)
            rebuilt = len(kernels_added(digests, digests_of(attempt.run / CACHE_FOLDER)))
        record = BuildRecord(
            engine=engine,
            model=request.model.uri,
            cold=cold,
            built=built,
            eager=eager,
            agreement=agreement,
            tolerance=request.tolerance,
            floor=request.floor,
        )
        if problems := "; ".join(record.problems(rebuilt)):
            # The next build compiles again: what is wrong may have been this cache alone.
            self._store.drop_compiled(name)
            raise NotProven(problems, hint=f"see the logs in {folder}")
        return record

    async def _compile(self, request: BuildRequest, name: str, progress: Progress) -> EngineStart:
        """Start once with an empty cache; what is put there is kept."""
        progress("compiling the model (a minute or more)")
        self._write(request, EngineManifest(engine=name, model=request.model, launch=request.launch), None)
        attempt = StartAttempt("cold", self._store.work_folder(name), fixed_run_folder(name), environment=REPEATABLE)
        started, _ = await start_engine(self._servers, self._score, request, self._store.root(name), attempt)
        cache = attempt.run / CACHE_FOLDER
        tidy_cache(cache)
        self._store.keep_compiled(name, started, cache)
        return started

    def _write(self, request: BuildRequest, manifest: EngineManifest, cache: Path | None) -> None:
        write_root(self._store.root(manifest.engine), manifest, request.folder, cache)
