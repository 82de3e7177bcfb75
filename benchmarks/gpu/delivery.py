"""Whole deliveries with users: version 2 delivered, broken and slow ones rolled back, and no request failed."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

from benchmarks.gpu.models import make_demo_models
from benchmarks.gpu.reports import PartReport
from benchmarks.gpu.task import Task
from tidegate.core.errors import OutsideError

RUNNER = Path(__file__).parents[1] / "deliveries.py"

GIVE_UP_SECONDS = 60.0
"""Before the part's end: users and fleet are to end in good order."""

EXPECTED = {"2": "delivered", "3": "rolled-back", "4": "rolled-back"}


async def measure(task: Task, report: PartReport) -> None:
    """The demo's versions: by its spec on a CPU, and by the same spec for this GPU."""
    await asyncio.to_thread(make_demo_models, task.demo_models)
    state, to = _paths(task)
    await asyncio.to_thread(_clean, state, to)
    content: dict[str, Any] | None = None
    try:
        await _run(task)
    finally:
        if to.exists():
            content = json.loads(to.read_text(encoding="utf-8"))
            report.put("deliveries", content)
            report.put("as_expected", as_expected(content))
    if task.small:
        report.leave_out("version 4, which is slow, and the second region", "--small")
    if content is None or not as_expected(content):
        raise OutsideError("a delivery ended as it must not, or users' requests failed", hint="see the part's log")


async def _run(task: Task) -> None:
    process = await asyncio.create_subprocess_exec(*command(task), stdout=sys.stderr)
    try:
        async with asyncio.timeout(max(task.limit.left - GIVE_UP_SECONDS, 1)):
            code = await process.wait()
    except TimeoutError:
        raise OutsideError("the deliveries were not done in time", hint="see which were, and the part's log") from None
    finally:
        await _end(process)
    if code:
        raise OutsideError(f"the deliveries ended with exit code {code}", hint="see the part's log")


def _paths(task: Task) -> tuple[Path, Path]:
    return (task.state / "deliveries").absolute(), (task.state / "deliveries.json").absolute()


def _clean(state: Path, to: Path) -> None:
    """Nothing of an earlier run is counted, and no fleet of one that was killed is left."""
    to.unlink(missing_ok=True)
    if state.exists():
        tidegate = Path(sys.executable).with_name("tidegate")
        subprocess.run([tidegate, "fleet", "down", "--state", state], stdout=sys.stderr, check=False)
        shutil.rmtree(state)


def command(task: Task) -> list[str]:
    """What runs them."""
    state, to = _paths(task)
    few = ["--waves", "1", "--bad-versions", "3"] if task.small else []
    gpu = [] if task.on_cpu else ["--accelerator", task.accelerator]
    paths = ["--state", str(state), "--models", str(task.demo_models.absolute()), "--to", str(to)]
    return [sys.executable, str(RUNNER), "--healthy", "1", *few, *gpu, *paths]


async def _end(process: Process) -> None:
    """It takes its users and its fleet down when it is interrupted."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def as_expected(content: dict[str, Any]) -> bool:
    """Whether each version ended as it must, and no request failed."""
    ended = all(each["outcome"] == EXPECTED[each["version"]] for each in content["deliveries"])
    users = content.get("users", {})
    return ended and users.get("failed") == 0 and users.get("requests", 0) > 0
