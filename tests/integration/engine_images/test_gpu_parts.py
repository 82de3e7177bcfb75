"""`benchmarks/gpu.sh` where there is nothing to measure with: what it refuses, and what a part that fails leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.gpu.reports import read_report

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks" / "gpu.sh"
NO_DRIVER = "exit 9"
H100 = 'echo "NVIDIA H100 80GB HBM3"'


def driver(folder: Path, does: str) -> str:
    """A PATH on which nvidia-smi is a script that does this."""
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In the environment of this process' Python."""
    variables: Mapping[str, str] = {**os.environ, "VENV": sys.prefix, **environment}
    return subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def test_without_a_gpu_only_the_small_measurement_is_made(tmp_path: Path) -> None:
    done = run(str(SCRIPT), "--to", str(tmp_path / "to"), PATH=driver(tmp_path / "bin", NO_DRIVER))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "gpu: this machine has no GPU (nvidia-smi); with --small it runs on a CPU\n"
    assert not (tmp_path / "to").exists()


def test_with_a_gpu_the_environment_for_cuda_is_asked_for(tmp_path: Path) -> None:
    """What is named here cannot serve on it, so nothing is begun."""
    named = {"TIDEGATE_ENGINE_PYTHON": sys.executable, "PATH": driver(tmp_path / "bin", H100)}
    done = run(str(SCRIPT), "--to", str(tmp_path / "to"), **named)
    assert done.returncode == 4
    assert f"the environment of {sys.executable} cannot serve" in done.stderr
    assert not (tmp_path / "to").exists()


@pytest.mark.long
def test_the_help_needs_no_gpu(tmp_path: Path) -> None:
    done = run(str(SCRIPT), "--help", PATH=driver(tmp_path / "bin", NO_DRIVER))
    assert done.returncode == 0
    assert "--small" in done.stdout
    assert "--only" not in done.stdout


@pytest.mark.long
def test_a_part_that_fails_says_so_in_its_json_and_the_next_one_runs(tmp_path: Path) -> None:
    away = {"TIDEGATE_ENGINE_HOME": str(tmp_path / "away"), "PATH": driver(tmp_path / "bin", NO_DRIVER)}
    away["TIDEGATE_ENGINE_PYTHON"] = ""
    parts = ("--part", "starts", "--part", "fit")
    done = run(sys.executable, "-m", "benchmarks.gpu.run", "--small", "--to", str(tmp_path / "to"), *parts, **away)
    assert done.returncode == 1, done.stderr
    for part in ("starts", "fit"):
        report = read_report(tmp_path / "to" / f"{part}.json")
        assert report["state"] == "failed"
        assert f"no engine environment for this tidegate at {tmp_path / 'away'}" in report["errors"][part]
        assert f"{part}: failed" in done.stdout
