"""Engines of one machine share its GPUs: what its driver says is free decides who starts, and where.

There is no GPU here: a program of the driver's tool's name tells of some, and engines are stand-ins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from fakes.engines.local_fleet import stand_in
from fakes.engines.nvidia_smi import H100, DriverTool, driver_tool

from rollouts.adapters.engine_process import EngineProcess, EngineProcesses
from rollouts.adapters.gpus import measured_gpus
from rollouts.adapters.http import Http
from rollouts.errors import CapacityError
from rollouts.local.machine import Admission, GpuMemory, measure
from rollouts.model import Engine
from tidegate.core.clock import SystemClock

pytestmark = pytest.mark.long

MIB = 1 << 20


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DriverTool:
    """Two GPUs, of which the second has more room."""
    tool = driver_tool(tmp_path / "bin", (H100, 20_000), (H100, 50_000))
    monkeypatch.setenv("PATH", tool.path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tool


def on_gpus(version: str, mib: int, gpus: int = 1) -> Engine:
    return stand_in(version).model_copy(update={"gpus": gpus, "gpu_bytes": mib * MIB, "gpu_names": (H100,)})


@pytest.fixture
async def engines(tmp_path: Path, driver: DriverTool) -> AsyncIterator[EngineProcesses]:
    del driver  # first on PATH
    async with Http() as http:
        yield EngineProcesses(
            "eu-west-1",
            logs=tmp_path / "logs",
            http=http,
            admission=Admission(measure),
            clock=SystemClock(),
            start_seconds=120,
            gpu_seconds=0,
        )


def variables_of(running: EngineProcess) -> dict[str, str]:
    """Those of the engine itself, which is below its guard."""
    (found,) = [
        each.environ()
        for each in psutil.Process().children(recursive=True)
        if str(running.port) in each.cmdline() and "stand_in_engine.py" in each.cmdline()[1]
    ]
    return {name: value for name, value in found.items() if name.startswith("CUDA_")}


def test_what_the_driver_tells_is_measured(driver: DriverTool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured_gpus() == (
        GpuMemory(index=0, name=H100, free_bytes=20_000 * MIB),
        GpuMemory(index=1, name=H100, free_bytes=50_000 * MIB),
    )
    # The operator's word, which the tool itself does not keep to.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.index for gpu in measured_gpus()] == [1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert measured_gpus() == ()


def test_a_gpu_whose_memory_is_not_told_is_none_to_place_an_engine_on(driver: DriverTool) -> None:
    table = driver.folder / "nvidia-smi.gpus"
    table.write_text(f"0|NVIDIA GB10|[N/A]\n1|{H100}|7\n")
    assert [gpu.index for gpu in measured_gpus()] == [1]
    (driver.folder / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert measured_gpus() == ()


async def test_each_engine_sees_the_gpu_on_which_most_is_free(engines: EngineProcesses, driver: DriverTool) -> None:
    first = await engines.start(on_gpus("1", 15_000))
    driver.shows([(H100, 20_000), (H100, 18_000)])
    second = await engines.start(on_gpus("2", 15_000))
    try:
        assert variables_of(first) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
        assert variables_of(second) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}
    finally:
        await first.stop()
        await second.stop()


async def test_an_engine_that_no_gpu_has_room_for_is_never_started(engines: EngineProcesses, tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match=r"version 1 needs 58\.6 GiB of GPU memory and 48\.8 GiB are free"):
        await engines.start(on_gpus("1", 60_000))
    with pytest.raises(CapacityError, match=r"on each of 2 GPUs and 48\.8 GiB, 19\.5 GiB are free"):
        await engines.start(on_gpus("1", 30_000, gpus=2))
    assert not (tmp_path / "logs").exists()


async def test_a_start_waits_for_what_an_ended_engine_still_holds(driver: DriverTool, tmp_path: Path) -> None:
    driver.shows([(H100, 100)])
    async with Http() as http:
        engines = EngineProcesses(
            "eu-west-1", logs=tmp_path, http=http, admission=Admission(measure), clock=SystemClock(), gpu_seconds=120
        )
        start = asyncio.create_task(engines.start(on_gpus("1", 15_000)))
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            assert not start.done()
        driver.shows([(H100, 20_000)])
        running = await start
        assert running.alive
        await running.stop()
