"""Inputs of other people: files and reports of bugs, made small, each with a `run` that exits with 0 when all is right.

`TIDEGATE=.venv/bin/tidegate tests/field/run-all` runs all of them, also those that take longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "field"
LONG = {"39-model-odd-names"}
"""A process with MLflow for each of its names."""


@pytest.mark.parametrize(
    "case", sorted(path.parent.name for path in CASES.glob("*/run") if path.parent.name not in LONG)
)
def test_what_others_wrote_is_read_right(case: str) -> None:
    environment = os.environ | {"TIDEGATE": str(Path(sys.executable).with_name("tidegate"))}
    done = subprocess.run([CASES / case / "run"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
