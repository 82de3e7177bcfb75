"""What `make demo` leaves up, without its engines: MLflow's UI, until `make demo-down`."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[3] / "examples/demo/run.py"
SERVE = "import pathlib, sys, run; print(run.serve_ui(pathlib.Path(sys.argv[1])))"


@pytest.mark.slow(reason="MLflow's server loads for some seconds")
def test_the_ui_stays_up_until_demo_down_which_may_be_said_twice(tmp_path: Path) -> None:
    # Not children of this process: the demo has ended when they are used.
    served = [sys.executable, "-c", SERVE, tmp_path]
    try:
        url = subprocess.run(served, cwd=RUNNER.parent, check=True, capture_output=True, text=True).stdout.split()[0]
        # As long as a busy machine needs.
        patient = ["curl", "--silent", "--fail", "--retry", "600", "--retry-delay", "1", "--retry-all-errors"]
        subprocess.run([*patient, url], check=True, capture_output=True)
    finally:
        for _ in range(2):
            subprocess.run([sys.executable, RUNNER, "--down", "--state", tmp_path], check=True, capture_output=True)
    assert not list(tmp_path.glob("*.pid"))
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=30)
