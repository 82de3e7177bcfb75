"""`gate compare` on real vLLM engines: the same weights pass, weights with noise of 5 % are found."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from fakes.services.sockets import end
from fakes.terminal import Tidegate
from safetensors.numpy import load_file, save_file

from rollouts.adapters.sockets import free_port
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.long]

ENGINE_PYTHON = Path(os.environ.get("TIDEGATE_ENGINE", "/opt/tidegate/engine")) / "bin" / "python"
START_SECONDS = 600
NOISE = 0.05
"""Of each matrix' standard deviation: about what rounding to 4 bits does."""


@contextmanager
def engine(folder: Path, *, noise: float = 0.0) -> Iterator[str]:
    """Its address; it may still be starting."""
    weights = write_tiny_model(folder, seed=1) / "model.safetensors"
    if noise:
        random = np.random.default_rng(1)
        spoilt = {
            name: (tensor + noise * tensor.std() * random.standard_normal(tensor.shape)).astype(tensor.dtype)
            if tensor.ndim == 2
            else tensor
            for name, tensor in load_file(weights).items()
        }
        save_file(spoilt, weights, metadata={"format": "pt"})
    port = free_port()
    options = {"--model": "model", "--served-model-name": "tiny", "--host": "127.0.0.1", "--port": str(port)}
    options |= {"--max-model-len": "256", "--kv-cache-memory-bytes": str(16 << 20), "--dtype": "float32"}
    flags = [text for option in options.items() for text in option]
    environment = {
        **os.environ,
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [ENGINE_PYTHON, "-m", "vllm.entrypoints.launchers.api_server.entry", *flags, "--enforce-eager"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            end(process)


def wait_for(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"{url}/health", trust_env=False).is_success:
                return
        except httpx.TransportError:
            assert time.monotonic() < deadline, f"the engine at {url} did not start"
        time.sleep(0.5)


TOPICS = "rain bread lamps trains moons tea wool maps salt bees ice glass paper clocks coal stairs ink wells oats kites"


def golden_of(url: str, path: Path) -> Path:
    """A golden set whose expected answers are the engine's own."""
    lines = []
    for topic in TOPICS.split():
        prompt = f"Tell me about {topic}."
        asked = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "max_tokens": 24, "temperature": 0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60, trust_env=False).json()
        expected = answer["choices"][0]["message"]["content"]
        lines.append(json.dumps({"prompt": prompt, "expected": expected, "scorer": "f1"}))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_equal_weights_pass_and_weights_with_noise_are_found(tidegate: Tidegate, tmp_path: Path) -> None:
    with ExitStack() as stack:
        stable, canary = [
            stack.enter_context(engine(tmp_path / name, noise=noise)) for name, noise in (("1", 0.0), ("2", NOISE))
        ]
        for url in (stable, canary):
            wait_for(url)
        golden = golden_of(stable, tmp_path / "golden.jsonl")
        pairs = tmp_path / "pairs.jsonl"
        found = tidegate("gate", "compare", "--stable", stable, "--canary", canary, "--golden", golden)
        equal = tidegate(
            "gate", "compare", "--stable", stable, "--canary", stable, "--golden", golden, "--pairs", pairs
        )
    assert (found.code, "fail          quality" in found.out) == (1, True), found.out + found.err
    assert equal.code == 0, equal.out + equal.err
    assert len(pairs.read_text().splitlines()) < 400
