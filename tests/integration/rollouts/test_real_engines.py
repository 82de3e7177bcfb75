"""One delivery, one way back and one crash with real vLLM engines."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest
from fakes.engines.local_fleet import REGION, Users

from rollouts.adapters.host_client import FleetHost
from rollouts.model import PORT, Engine, RegionPhase
from tidegate.testing import versions, write_tiny_model

ENGINE_PYTHON = Path(os.environ.get("TIDEGATE_ENGINE", "/opt/tidegate/engine")) / "bin" / "python"
MODEL = "tiny"


def vllm(version: str, folder: Path) -> Engine:
    write_tiny_model(folder / version, seed=int(version))
    options = {
        "--model": "model",
        "--served-model-name": MODEL,
        "--host": "127.0.0.1",
        "--port": PORT,
        "--max-model-len": "256",
        "--kv-cache-memory-bytes": str(16 << 20),
        "--shutdown-timeout": "30",
        "--dtype": "float32",
    }
    flags = [text for option in options.items() for text in option]
    return Engine(
        version=version,
        digest=f"sha256-of-{version}",
        model=MODEL,
        command=(str(ENGINE_PYTHON), "-m", "vllm.entrypoints.launchers.api_server.entry", *flags, "--enforce-eager"),
        environment={
            "VLLM_CACHE_ROOT": str(folder / "cache"),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        },
        workdir=str(folder / version),
        memory_bytes=2 << 30,
    )


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.long
async def test_real_engines_are_delivered_taken_back_and_never_orphaned(host: FleetHost, tmp_path: Path) -> None:
    fleet = host.fleet(REGION)
    state = await fleet.deploy(vllm("1", tmp_path))
    async with Users(state.entry, model=MODEL, per_second=2, max_tokens=24) as users:
        state = await fleet.deploy(vllm("2", tmp_path))
        assert (state.phase, versions(state)) == (RegionPhase.TRIAL, ("1", "2", None))
        for weight in (25, 50):
            await fleet.shift(weight)
            await asyncio.sleep(4)
        assert versions(await fleet.promote()) == ("2", None, "1")
        await asyncio.sleep(2)
        assert versions(await fleet.rollback("1")) == ("1", None, None)
    assert users.failed == []
    assert {request.version for request in users.requests} == {"1", "2"}

    everything = psutil.Process(host.pid).children(recursive=True)
    os.kill(host.pid, signal.SIGKILL)
    _, left = psutil.wait_procs(everything, timeout=60)
    assert left == []
