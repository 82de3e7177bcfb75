"""How long an engine takes to its first healthy answer, as JSON: cold, from the compile cache, eagerly.

    .venv/bin/python benchmarks/engine_start.py FOLDER --runs 3

`FOLDER` is an engine's folder: it holds `model/`. Cold is run once: its compile cache starts empty, and fills
for the runs after it. Two more numbers come with each start: vLLM's own `init engine`, which is the part that
a compile cache shortens, and whether vLLM says that it loaded the compiled model.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.weights import read_weights
from engine_images.launch import PORT, launch_command
from engine_images.model import LaunchCommand
from engine_images.spec import CompileMode, CompileSpec, EngineSettings, VllmSpec

DEADLINE_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the start of an engine.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    with tempfile.TemporaryDirectory() as cache:
        compiled, eager = (launch(folder, Path(cache), mode) for mode in (CompileMode.DEFAULT, CompileMode.NONE))
        result = {
            "cores": os.cpu_count(),
            "cold": [start(compiled)],
            "compile_cache": [start(compiled) for _ in range(arguments.runs)],
            "eager": [start(eager) for _ in range(arguments.runs)],
        }
    print(json.dumps(result, indent=2))


def launch(folder: Path, cache: Path, mode: CompileMode) -> LaunchCommand:
    environment = find_engine_environment()
    settings = EngineSettings(
        vllm=VllmSpec(version=environment.vllm, args={"max-model-len": 1024, "dtype": "float32"}),
        compile=CompileSpec(mode=mode),
    )
    weights = read_weights(folder / "model")
    threads = os.cpu_count() or 1
    return launch_command(settings, environment, weights, name="m", workdir=folder, cache=cache, threads=threads)


def start(launch: LaunchCommand) -> dict[str, Any]:
    """Start the engine, wait until it is healthy, stop it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile("w+") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            [part.replace(PORT, str(port)) for part in launch.command],
            env=os.environ | launch.environment,
            cwd=launch.workdir,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until_healthy(f"http://127.0.0.1:{port}/health", process)
            healthy = time.monotonic() - began
            process.terminate()
            process.wait(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        log.seek(0)
        said = log.read()
    init = re.search(r"init engine .* took ([\d.]+) s", said)
    return {
        "healthy_s": round(healthy, 1),
        "init_engine_s": float(init[1]) if init else None,
        "loaded_compiled_model": "Directly load AOT compilation" in said and "Compiling model again" not in said,
    }


def wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the engine died with exit code {process.returncode}")
        try:
            if httpx.get(url, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"the engine was not healthy after {DEADLINE_SECONDS} s")


if __name__ == "__main__":
    main()
