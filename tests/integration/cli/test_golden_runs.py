"""Commands on a machine with MLflow and two exports, `v1` and `v2`, as `tests/golden/machine/SUBJECT.console` has them.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/integration/cli/test_golden_runs.py`; read the diff.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from fakes.golden import nowhere, play
from fakes.services.embedded_mlflow import write_embedded_mlflow

from tidegate.testing import write_tiny_model

SESSIONS = sorted((Path(__file__).parents[2] / "golden/machine").glob("*.console"))

OTHERWISE = {
    r"\b[0-9a-f]{32}\b": "ID",
    r"\b[0-9a-f]{64}\b": "SHA256",
    r"digest [0-9a-f]{12}": "digest DIGEST",
    r"delivery [0-9a-f]{8}\b": "delivery ID",
    r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC": "TIME",
    r"\d{4}-\d\d-\d\d \d\d:\d\d": "TIME",
    r"process \d+": "process PID",
    re.escape(socket.gethostname()): "HOST",
}
"""What is another at each run, and what stands for it."""


@pytest.mark.slow(reason="MLflow, and every file of a model")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_a_session_goes_as_it_is_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_embedded_mlflow(tmp_path / ".tidegate")
    for seed in (1, 2):
        write_tiny_model(tmp_path / f"v{seed}", seed=seed)
    nowhere(monkeypatch, tmp_path)
    play(path, monkeypatch, capsys, OTHERWISE)
