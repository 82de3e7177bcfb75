"""Starts an engine of vLLM for a build, and asks it through its OpenAI-compatible interface how likely tokens are."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types import CompletionChoice

from engine_images.build.engine_root import digests_of, import_path, serve, tidy_cache, write_root
from engine_images.build.model import BuildRequest
from engine_images.build.proof import (
    EngineStart,
    ScoredPrompt,
    compare,
    compare_golden,
    compare_quantized,
    kernels_added,
    read_start_log,
    timing_of,
)
from engine_images.errors import EnvironmentMissing
from engine_images.manifest import CACHE_FOLDER, CompileKey, EngineManifest
from engine_images.oci.entrypoint_files import PACKAGE
from engine_images.ports import EngineServers, GoldenSet, LogprobScorer, StartAttempt, StartResult
from tidegate.core.children import Child, variables_for
from tidegate.core.errors import OutsideError
from tidegate.core.model import Value

ANSWER_TOKENS = 16
"""Enough to pass from prefill to decode, which runs other kernels."""

TIMEOUT_SECONDS = 120.0


class CompletionScorer:
    """A `Scorer`. One prompt after the other: what is in a batch changes the last bits of a sum."""

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
        async with AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            timeout=TIMEOUT_SECONDS,
            max_retries=0,
            # The engine is on this machine, whatever proxy the environment has for the world outside.
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        ) as client:
            return tuple([await _one(client, model, prompt) for prompt in prompts])


async def _one(client: AsyncOpenAI, model: str, prompt: str) -> ScoredPrompt:
    began = time.perf_counter()
    try:
        answer = await client.completions.create(
            model=model,
            prompt=prompt,
            max_tokens=ANSWER_TOKENS,
            temperature=0,
            logprobs=0,
            extra_body={"prompt_logprobs": 0, "return_tokens_as_token_ids": True},
        )
    except APIError as error:
        raise OutsideError(
            f"the engine at {client.base_url} gives no log-probabilities: {error.message}", hint="see its log"
        ) from error
    return _scored(answer.choices[0], time.perf_counter() - began)


def _scored(choice: CompletionChoice, seconds: float) -> ScoredPrompt:
    # vLLM's own, next to what OpenAI's API has: for each token of the prompt its id and what is known of it.
    known: list[Mapping[str, Mapping[str, Any]] | None] = (choice.model_extra or {})["prompt_logprobs"]
    logprobs = choice.logprobs
    assert logprobs is not None, "they were asked for"
    return ScoredPrompt(
        prompt=tuple(float(next(iter(token.values()))["logprob"]) for token in known if token),
        answer=tuple(logprobs.tokens or ()),
        logprobs=tuple(float(value) for value in logprobs.token_logprobs or () if value is not None),
        seconds=seconds,
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

ARGUMENTS = {"eager": ("--enforce-eager",), "original": ("--enforce-eager",)}
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {"cold": REPEATABLE, "built": MUST_LOAD}
"""By what a start is for."""

GOLDEN_ASKED = ("eager", "original")
"""The starts that tell what quantization changed."""

EAGER_ANSWERS = "eager.answers.json"
"""Of an eager start, for the one after it."""


class Answers(Value):
    """What was asked of one start."""

    scored: tuple[ScoredPrompt, ...]
    golden: Mapping[str, float] | None = None
    """Scores by prompt; None where no golden set is asked."""


KeyOf = Callable[[BuildRequest, Path], CompileKey]


class VllmRunner:
    """`BuildRunner` with vLLM."""

    def __init__(
        self,
        servers: EngineServers,
        scorer: LogprobScorer,
        *,
        golden: GoldenSet | None = None,
        key_of: KeyOf = key_of,
    ) -> None:
        """`golden` is asked where a request has terms for it; `key_of` asks the engine environment."""
        self._servers = servers
        self._scorer = scorer
        self._golden = golden
        self._key_of = key_of

    async def key(self, request: BuildRequest, folder: Path) -> CompileKey:
        return await asyncio.to_thread(self._key_of, request, folder)

    async def start(self, request: BuildRequest, root: Path, attempt: StartAttempt) -> StartResult:
        shutil.rmtree(attempt.run, ignore_errors=True)
        attempt.folder.mkdir(parents=True, exist_ok=True)
        for file in (log_of(attempt), key_file_of(attempt)):
            file.unlink(missing_ok=True)
        try:
            started, answers = await self._answers(request, root, attempt)
        except OutsideError:
            # Told to fail instead of compiling again, it did: its log and its key say why.
            missed = start_of(attempt)
            if attempt.what != "built" or missed.log.init_seconds is not None or missed.key is None:
                raise
            return StartResult(missed)
        eager = attempt.folder / EAGER_ANSWERS
        if attempt.what == "eager":
            eager.write_text(answers.model_dump_json(), encoding="utf-8")
        if attempt.what == "original":
            return _quantized(request, started, answers, Answers.model_validate_json(eager.read_bytes()))
        if attempt.what == "cold":
            tidy_cache(attempt.cache)
        if attempt.what != "built":
            return StartResult(started.model_copy(update={"timing": timing_of(answers.scored)}))
        expected = Answers.model_validate_json(eager.read_bytes()).scored
        return StartResult(
            started.model_copy(update={"timing": timing_of(answers.scored, expected)}),
            agreement=compare(expected, answers.scored),
            rebuilt=len(kernels_added(digests_of(root / CACHE_FOLDER), digests_of(attempt.cache))),
        )

    async def _answers(self, request: BuildRequest, root: Path, attempt: StartAttempt) -> tuple[EngineStart, Answers]:
        # The person's own VLLM_LOGGING_LEVEL may hide what the proof reads.
        environment = {
            "VLLM_LOGGING_LEVEL": "INFO",
            **ENVIRONMENT.get(attempt.what, {}),
            **attempt.environment,
            KEY_VARIABLE: str(key_file_of(attempt)),
        }
        arguments = (*ARGUMENTS.get(attempt.what, ()), *attempt.arguments)
        launch = serve(request, root, attempt.run, arguments=arguments, environment=environment)
        server = await self._servers.start(launch, log_of(attempt))
        try:
            answers = await self._asked(server.url, request, attempt)
            memory = server.memory_bytes()
        finally:
            await server.stop()
        return start_of(attempt, seconds=server.seconds, memory_bytes=memory), answers

    async def _asked(self, url: str, request: BuildRequest, attempt: StartAttempt) -> Answers:
        scored = await self._scorer.score(url, request.served_name, request.prompts)
        if request.golden is None or attempt.what not in GOLDEN_ASKED:
            return Answers(scored=scored)
        assert self._golden is not None, "a request has terms for a golden set that nobody asks"
        return Answers(scored=scored, golden=await self._golden.scores(url, request.served_name))


def _quantized(request: BuildRequest, started: EngineStart, original: Answers, quantized: Answers) -> StartResult:
    """What an `original` start shows next to the eager one before it."""
    golden = None
    if request.golden and original.golden is not None and quantized.golden is not None:
        golden = compare_golden(request.golden, original.golden, quantized.golden)
    return StartResult(started, quantization=compare_quantized(original.scored, quantized.scored), golden=golden)


def log_of(attempt: StartAttempt) -> Path:
    """Everything that the engine said."""
    return attempt.folder / f"{attempt.what}.log"


def key_file_of(attempt: StartAttempt) -> Path:
    """Where vLLM's own key is written."""
    return attempt.folder / f"{attempt.what}.key.json"


def start_of(attempt: StartAttempt, *, seconds: float = 0, memory_bytes: int = 0) -> EngineStart:
    """What log and key say of a start; also of one that failed."""
    log, file = log_of(attempt), key_file_of(attempt)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    key = CompileKey(factors=json.loads(file.read_bytes())) if file.exists() else None
    return EngineStart(log=read_start_log(text), seconds=seconds, memory_bytes=memory_bytes, key=key)
