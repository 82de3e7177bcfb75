"""How processes start, fail and end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from fakes.engines.local_fleet import arguments_of, stand_in

from rollouts.adapters import process, sockets
from rollouts.adapters.engine_process import EngineProcesses
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import EngineDidNotStart
from rollouts.local.machine import GIB, Admission
from rollouts.model import Engine
from tidegate.core.children import Child
from tidegate.core.clock import SystemClock
from tidegate.core.errors import Refused

FAMILY = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


async def started(script: str, log: Path) -> ChildProcess:
    """A Python process that has said `up`."""
    child = process.start([sys.executable, "-c", script], kind=Child.ENGINE, log=log)
    while "up" not in child.tail():
        await asyncio.sleep(0.02)
    return child


async def test_a_process_ends_with_its_whole_family(tmp_path: Path) -> None:
    child = await started(FAMILY, tmp_path / "log")
    below = psutil.Process(child.pid).children()
    await child.stop(grace_seconds=5)
    assert below
    assert psutil.wait_procs(below, timeout=60)[1] == []
    assert not child.alive


async def test_the_family_of_a_process_that_died_by_itself_ends_too(tmp_path: Path) -> None:
    child = await started(FAMILY, tmp_path / "log")
    below = psutil.Process(child.pid).children()
    os.kill(child.pid, signal.SIGKILL)
    while child.alive:
        await asyncio.sleep(0.02)
    await child.stop(grace_seconds=5)
    assert psutil.wait_procs(below, timeout=60)[1] == []


async def test_a_process_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    child = await started(STUBBORN, tmp_path / "log")
    begun = time.monotonic()
    await child.stop(grace_seconds=0.3)
    assert 0.3 <= time.monotonic() - begun < 60
    assert not child.alive
    await child.stop(grace_seconds=0.3)


async def test_a_program_that_is_not_there_says_so_in_its_log(tmp_path: Path) -> None:
    child = process.start(["no-such-program"], kind=Child.PROXY, log=tmp_path / "log")
    while child.alive:
        await asyncio.sleep(0.02)
    assert child.tail() == "no-such-program: No such file or directory"
    child.kill()


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            [
                "WARNING limits can cause errors like `OSError: [Errno 24] Too many open files`.",
                "(EngineCore pid=7) ERROR 11-21 [core.py:1510] ValueError: the KV cache is too small",
                "RuntimeError: Engine core initialization failed.",
            ],
            "ValueError: the KV cache is too small",
        ),
        (
            [
                "usage: entry.py [-h] [--headless]",
                "entry.py: error: unrecognized arguments: --max-modl-len=5",
                *map(str, range(process.TAIL_LINES)),
            ],
            "unrecognized arguments: --max-modl-len=5",
        ),
    ],
    ids=["an exception, and a warning is none", "an argument that it does not take"],
)
async def test_the_cause_of_an_end_is_found_in_the_log_whose_end_is_shown(
    lines: list[str], cause: str, tmp_path: Path
) -> None:
    child = await started(f"print({chr(10).join([*lines, 'up'])!r}, flush=True)", tmp_path / "log")
    assert child.first_error() == cause
    assert child.tail().splitlines() == [*lines, "up"][-process.TAIL_LINES :]
    await child.stop(grace_seconds=5)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not sockets.is_free(server.getsockname()[1])
    assert sockets.free_port() in sockets.CHOICE


class TestEngines:
    machine = 8 * GIB

    @pytest.fixture
    async def engines(self, tmp_path: Path) -> AsyncIterator[EngineProcesses]:
        async with Http() as http:
            yield self.processes(tmp_path, http, start_seconds=120)

    def processes(self, folder: Path, http: Http, *, start_seconds: float) -> EngineProcesses:
        return EngineProcesses(
            "eu-west-1",
            logs=folder / "logs",
            http=http,
            admission=Admission(lambda: self.machine),
            clock=SystemClock(),
            start_seconds=start_seconds,
        )

    async def test_an_engine_has_answered_before_it_counts_as_ready(self, engines: EngineProcesses) -> None:
        running = await engines.start(stand_in("6"))
        async with Http() as http:
            metrics = (await http.get(f"{running.url}/metrics")).text
        answered = re.search(r"^vllm:request_success_total\{.*\} (.+)$", metrics, re.MULTILINE)
        assert answered and float(answered[1]) > 0
        assert await running.busy() == 0
        await running.stop()
        assert await running.busy() == 0, "nothing runs on a dead engine"

    async def test_an_engine_that_dies_fails_at_once_with_its_last_words(self, engines: EngineProcesses) -> None:
        with pytest.raises(EngineDidNotStart, match="version 6 died while it started") as caught:
            await engines.start(stand_in("6", "--fail", "CUDA out of memory"))
        assert caught.value.detail == "CUDA out of memory"

    async def test_an_engine_that_never_is_healthy_is_given_up(self, tmp_path: Path) -> None:
        silent = Engine(
            version="6",
            digest="d",
            model="m",
            command=("/bin/sh", "-c", "echo loading; sleep 600"),
            workdir=str(tmp_path),
            memory_bytes=1,
        )
        async with Http() as http:
            with pytest.raises(EngineDidNotStart, match="was not healthy after 3 s") as caught:
                await self.processes(tmp_path, http, start_seconds=3).start(silent)
        assert caught.value.detail == "loading"
        assert not [child for child in psutil.Process().children() if "loading" in " ".join(arguments_of(child))]

    async def test_an_engine_that_is_healthy_but_answers_nothing_is_given_up(self, engines: EngineProcesses) -> None:
        wrong = stand_in("6").model_copy(update={"model": "another-name"})
        with pytest.raises(EngineDidNotStart, match="answers its first chat with status 404"):
            await engines.start(wrong)

    async def test_an_engine_that_does_not_fit_is_never_started(self, engines: EngineProcesses, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="of memory and"):
            await engines.start(stand_in("6").model_copy(update={"memory_bytes": 80 * GIB}))
        assert not (tmp_path / "logs").exists()

    async def test_a_cancelled_start_leaves_nothing(self, engines: EngineProcesses, tmp_path: Path) -> None:
        before = set(psutil.Process().children())
        start = asyncio.create_task(engines.start(stand_in("6")))
        while not list(tmp_path.glob("logs/*")):
            await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        begun = set(psutil.Process().children()) - before
        assert not [child for child in begun if child.status() != psutil.STATUS_ZOMBIE]


async def test_a_process_has_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "TIDEGATE_JUDGE_KEY", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "hunter2")
    for kind in Child:
        log = tmp_path / kind
        child = process.start(["env"], kind=kind, log=log, environment={"GIVEN": "1"})
        assert await child.ends_within(10)
        await child.stop(grace_seconds=0)
        assert "hunter2" not in log.read_text()
        assert {"GIVEN=1", f"PATH={os.environ['PATH']}"} <= set(log.read_text().splitlines())
