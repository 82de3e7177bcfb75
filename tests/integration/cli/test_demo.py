"""What `make demo` leaves up, without its engines: both pages, until `make demo-down`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[3] / "examples/demo/run.py"
SERVE = "import json, pathlib, sys, run; print(json.dumps(dict(run.serve_pages(pathlib.Path(sys.argv[1])))))"


@pytest.mark.slow(reason="MLflow's server loads for some seconds")
def test_pages_stay_up_until_demo_down_which_may_be_said_twice(tmp_path: Path) -> None:
    # Not children of this process: the demo has ended when they are used.
    served = [sys.executable, "-c", SERVE, tmp_path]
    try:
        found = json.loads(subprocess.run(served, cwd=RUNNER.parent, check=True, capture_output=True).stdout)
        assert list(found) == ["MLflow", "page"]
        for said in found.values():
            # As long as a busy machine needs.
            patient = ["curl", "--silent", "--fail", "--retry", "600", "--retry-delay", "1", "--retry-all-errors"]
            subprocess.run([*patient, said.split()[0]], check=True, capture_output=True)
    finally:
        for _ in range(2):
            subprocess.run([sys.executable, RUNNER, "--down", "--state", tmp_path], check=True, capture_output=True)
    assert not list(tmp_path.glob("*.pid"))
    for said in found.values():
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(said.split()[0], timeout=30)
