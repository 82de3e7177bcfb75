"""A real vLLM of a tiny model, and what it says of its own times."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load_clients.clients import Place, pinned
from engine_images.adapters.environment import find_engine_environment
from rollouts.adapters.sockets import free_port

TTFT = "vllm:time_to_first_token_seconds"
MAIN = "vllm.entrypoints.launchers.api_server.entry"


@dataclass(frozen=True)
class Told:
    """The histogram of TTFT so far."""

    seconds: float
    requests: float

    def since(self, before: Told) -> float:
        """The mean of what came after; seconds."""
        return (self.seconds - before.seconds) / (self.requests - before.requests)


def told_by_engine(url: str) -> Told:
    """What `/metrics` has now."""
    found = {"sum": 0.0, "count": 0.0}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", trust_env=False).text):
        for sample in family.samples:
            if sample.name in {f"{TTFT}_sum", f"{TTFT}_count"}:
                found[sample.name.rpartition("_")[2]] += sample.value
    return Told(found["sum"], found["count"])


@contextmanager
def engine(place: Place, core: int) -> Iterator[str]:
    """Its address; it may still be starting."""
    port = free_port()
    options = {"--model": place.tokenizer, "--served-model-name": "tiny", "--host": "127.0.0.1", "--port": port}
    options |= {"--max-model-len": 256, "--kv-cache-memory-bytes": 16 << 20, "--dtype": "float32"}
    flags = [str(part) for option in options.items() for part in option]
    environment = {
        **os.environ,
        "VLLM_CACHE_ROOT": str(place.folder / "cache"),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [find_engine_environment().python, "-m", MAIN, *flags, "--enforce-eager"]
    with (
        (place.folder / "engine.log").open("wb") as log,
        # A group of its own: the engine's core is a process that outlives the one which is killed.
        subprocess.Popen(pinned(core, command), env=environment, stdout=log, stderr=log, process_group=0) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
