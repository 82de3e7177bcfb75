"""Runs trials of torch models in fresh processes on the engine environment's Python."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from engine_images.model import EngineEnvironment
from engine_images.torch_compile.errors import NoRoom, TrialFailed, error_of
from engine_images.torch_compile.model import Job, Run
from engine_images.torch_compile.trial import Progress
from tidegate.core.children import Child, variables_for

PACKAGE = Path(__file__).parent.parent / "torch_compile" / "environment"
MARK = "tidegate-torch: "
"""What stands before a line of progress."""
LAST_LINES = 40
"""How much of what a dead process said is told."""


class TorchProcesses:
    """`Processes` on this machine. Each starts with empty compile caches, as a new machine would."""

    def __init__(self, environment: EngineEnvironment, workdir: Path, *, timeout_seconds: float) -> None:
        """`workdir` exists, and goes with its owner; `timeout_seconds` is for each process."""
        self._python = environment.python
        self._workdir = workdir
        self._timeout = timeout_seconds

    def run(self, job: Job, progress: Progress) -> Run:
        """Raises as the process' error says; TrialFailed or NoRoom when it left none."""
        result = self._workdir / "result.json"
        result.unlink(missing_ok=True)
        caches = Path(tempfile.mkdtemp(prefix="caches-", dir=self._workdir))
        try:
            self._wait(job, caches, progress)
        finally:
            shutil.rmtree(caches, ignore_errors=True)
        data = json.loads(result.read_text(encoding="utf-8"))
        if "error" in data:
            raise error_of(**data["error"])
        return Run.model_validate(data)

    def _wait(self, job: Job, caches: Path, progress: Progress) -> None:
        with self._started(job, caches) as (process, late):
            assert process.stderr is not None
            said = _listen(process.stderr, progress)
            code = process.wait()
        if late.is_set():
            raise TrialFailed(f"the trial was not over after {self._timeout:g} s", hint="give it longer: --timeout")
        if code == -signal.SIGKILL:
            raise NoRoom("the kernel killed the trial, most likely for its memory", hint="try smaller shapes")
        if code != 0:
            last = said[-1] if said else "it said nothing"
            raise TrialFailed(f"the trial died with exit code {code}: {last}", detail="\n".join(said))

    @contextmanager
    def _started(self, job: Job, caches: Path) -> Iterator[tuple[subprocess.Popen[str], threading.Event]]:
        """The process with its job, and whether it had to be ended; nothing of it is left behind."""
        late = threading.Event()
        process = subprocess.Popen(
            [self._python, "-P", "-m", "tidegate_torch"],
            env=self._environment(caches),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def end() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(self._timeout, end)
        timer.start()
        try:
            assert process.stdin is not None
            with process.stdin as stdin:
                stdin.write(json.dumps(self._order(job)))
            yield process, late
        finally:
            timer.cancel()
            # Its compilers too, whatever became of itself.
            _kill(process)
            process.wait()
            assert process.stderr is not None
            process.stderr.close()

    def _order(self, job: Job) -> dict[str, object]:
        """The job as the process reads it."""
        subject, options = job.subject, job.options
        return {
            "factory": subject.factory,
            "shapes": subject.shapes,
            "device": str(subject.device),
            "repeats": subject.repeats,
            "mode": str(options.mode) if options else None,
            "dynamic": options.dynamic.as_torch_has_it if options else None,
            "fullgraph": options.fullgraph if options else False,
            "spawned": time.monotonic(),
            "workdir": str(self._workdir),
            "save": str(job.save) if job.save else None,
            "load": str(job.load) if job.load else None,
        }

    def _environment(self, caches: Path) -> dict[str, str]:
        return variables_for(Child.ENGINE, os.environ) | {
            "PYTHONPATH": str(PACKAGE),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
        }


def _listen(lines: IO[str] | Iterable[str], progress: Progress) -> list[str]:
    """Pass progress on until the process ends; the last of everything else that it said."""
    said: deque[str] = deque(maxlen=LAST_LINES)
    for line in lines:
        if line.startswith(MARK):
            progress(line.removeprefix(MARK).rstrip())
        elif line.strip():
            said.append(line.rstrip())
    return list(said)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
