"""`benchmarks/gpu.sh --small` with real engines: one model, one start of each kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.reports import read_report
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800), pytest.mark.long]

ROOT = Path(__file__).parents[3]


@pytest.fixture
def no_gpu(tmp_path: Path) -> str:
    """A PATH on which no driver answers: the figures of a GPU take longer than a test may."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


def measure(model: Path, to: Path, path: str) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "benchmarks" / "gpu.sh", "--small", "--part", "starts", "--model", model, "--to", to]
    variables = {**os.environ, "VENV": sys.prefix, "PATH": path}
    return subprocess.run(command, env=variables, cwd=to, capture_output=True, text=True, timeout=1500, check=False)


def test_starts_are_measured_once(tmp_path: Path, no_gpu: str) -> None:
    model, to = write_tiny_model(tmp_path), tmp_path / "to"
    to.mkdir()
    done = measure(model, to, no_gpu)
    assert done.returncode == 0, done.stdout + done.stderr + (to / "starts.log").read_text()

    report = read_report(to / "starts.json")
    assert report["state"] == "measured"
    assert (report["errors"], report["left_out"]) == ({}, {})
    assert {"vllm", "torch", "processor", "cores"} <= report["machine"].keys()
    starts = report["found"]["starts"]["model"]
    loaded = {way: [start["loaded"] for start in found] for way, found in starts.items()}
    assert loaded == {"cold": [False], "kept": [True], "eager": [False]}
    cold, kept = (starts[way][0]["init_seconds"] for way in ("cold", "kept"))
    assert kept < cold
    assert report["found"]["medians"]["model"]["cold_over_kept_init"] == round(cold / kept, 1)
    assert report["found"]["builds"]["model"]["largest"] <= report["found"]["builds"]["model"]["tolerance"]

    before = (to / "starts.json").read_bytes()
    again = measure(model, to, no_gpu)
    assert (again.returncode, (to / "starts.json").read_bytes()) == (0, before)
    assert "starts: measured before" in again.stdout
