"""Runs torch modules in fresh processes on the engine environment's Python, and starts them for a build."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine_images.build.model import BuildRequest
from engine_images.build.torch_run import NoRoom, RunFailed, TorchJob, TorchRun, error_of
from engine_images.manifest import CACHE_FOLDER, CompileKey
from engine_images.model import EngineEnvironment
from engine_images.ports import Progress, StartAttempt, StartResult
from tidegate.core.children import Child, variables_for

PACKAGE = Path(__file__).parent.parent
WORKER = "engine_images.environment.torch_worker"
MARK = "tidegate-torch: "
"""What stands before a line of progress."""
LAST_LINES = 40
"""How much of what a dead process printed is shown."""
LONGEST_LINE = 1 << 20
BUILD_SECONDS = 3600.0
"""For each process of a build; max-autotune tries many kernels."""


class TorchProcesses:
    """Runs each job in a fresh process, with empty compile caches as on a new machine; eager outputs are kept for those
    after it.
    """

    def __init__(self, environment: EngineEnvironment, workdir: Path, *, timeout_seconds: float) -> None:
        """`workdir` exists, and goes with its owner; `timeout_seconds` is for each process."""
        self._python = environment.python
        self._workdir = workdir
        self._timeout = timeout_seconds

    async def run(self, job: TorchJob, progress: Progress) -> TorchRun:
        """Raises as the process' error says; RunFailed or NoRoom when it left none."""
        return TorchRun.model_validate(await self._result(job, progress))

    async def factors(self, job: TorchJob, progress: Progress) -> dict[str, str]:
        """What decides whether a saved cache may be used; nothing is compiled. Raises as `run` does."""
        found: dict[str, str] = (await self._result(job, progress, key_only=True))["factors"]
        return found

    async def _result(self, job: TorchJob, progress: Progress, *, key_only: bool = False) -> dict[str, Any]:
        # In a folder of its own: of tidegate the process sees this package, and none of what lies around it.
        with tempfile.TemporaryDirectory(prefix="process-", dir=self._workdir, ignore_cleanup_errors=True) as own:
            Path(own, PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
            file = Path(own, "result.json")
            order = {**self._order(job), "result": str(file), "key_only": key_only}
            await self._wait(json.dumps(order), Path(own), progress)
            result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if "error" in result:
            raise error_of(**result["error"])
        return result

    async def _wait(self, order: str, own: Path, progress: Progress) -> None:
        printed: deque[str] = deque(maxlen=LAST_LINES)
        try:
            async with asyncio.timeout(self._timeout), self._process(own) as process:
                assert process.stdin is not None
                assert process.stderr is not None
                process.stdin.write(order.encode())
                process.stdin.close()
                async for line in process.stderr:
                    _sort(line.decode(errors="replace").rstrip(), printed, progress)
                code = await process.wait()
        except TimeoutError:
            late = f"the trial was not over after {self._timeout:g} s"
            raise RunFailed(late, hint="take fewer shapes, another mode, or give it longer") from None
        if code == -signal.SIGKILL:
            raise NoRoom("the kernel killed the trial, most likely for its memory", hint="try smaller shapes")
        if code != 0:
            last = printed[-1] if printed else "it printed nothing"
            raise RunFailed(
                f"the trial died with exit code {code}: {last}",
                hint="--debug shows all that it printed",
                detail="\n".join(printed),
            )

    @asynccontextmanager
    async def _process(self, own: Path) -> AsyncIterator[Process]:
        """Nothing of it is left behind, its compilers included."""
        process = await asyncio.create_subprocess_exec(
            *(self._python, "-P", "-m", WORKER),
            env=self._environment(own),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _kill(process.pid)
            await process.wait()

    def _order(self, job: TorchJob) -> dict[str, object]:
        """The job as the process reads it."""
        fields = job.model_dump(mode="json")
        options = fields.pop("options") or {"mode": None, "dynamic": None, "fullgraph": False}
        return {
            **fields.pop("subject"),
            **options,
            **fields,
            "spawned": time.monotonic(),
            "workdir": str(self._workdir),
        }

    def _environment(self, own: Path) -> dict[str, str]:
        return variables_for(Child.ENGINE, os.environ) | {
            "PYTHONPATH": str(own),
            "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
            "TRITON_CACHE_DIR": str(own / "triton"),
        }


def _sort(line: str, printed: deque[str], progress: Progress) -> None:
    if line.startswith(MARK):
        progress(line.removeprefix(MARK))
    elif line.strip():
        printed.append(line)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


class TorchRunner:
    """`BuildRunner` for torch modules."""

    def __init__(self, environment: EngineEnvironment, *, timeout_seconds: float = BUILD_SECONDS) -> None:
        """On the Python of `environment`; `timeout_seconds` is for each process."""
        self._environment = environment
        self._timeout = timeout_seconds

    async def key(self, request: BuildRequest, folder: Path) -> CompileKey:
        job = _job(request).model_copy(update={"options": request.options if request.compiled else None})
        return CompileKey(factors=await self._in(folder).factors(job, _silent))

    async def start(self, request: BuildRequest, root: Path, attempt: StartAttempt) -> StartResult:
        shutil.rmtree(attempt.run, ignore_errors=True)
        eager = attempt.what == "eager"
        changed = {
            "options": None if eager else request.options,
            "save": attempt.cache if attempt.what == "cold" else None,
            "load": root / CACHE_FOLDER if attempt.what == "built" else None,
        }
        run = await self._in(attempt.folder).run(_job(request).model_copy(update=changed), _silent)
        (attempt.folder / f"{attempt.what}.json").write_text(run.model_dump_json(indent=1), encoding="utf-8")
        agreement = run.agreement if attempt.what == "built" else None
        return StartResult(run.start(eager=eager), agreement, run.counters.kernels_built)

    def _in(self, folder: Path) -> TorchProcesses:
        folder.mkdir(parents=True, exist_ok=True)
        return TorchProcesses(self._environment, folder, timeout_seconds=self._timeout)


def _job(request: BuildRequest) -> TorchJob:
    assert request.torch is not None, "a build of a torch module has one"
    return TorchJob(subject=request.torch, files=request.folder)


def _silent(line: str) -> None:
    """A build names each of its starts itself."""
