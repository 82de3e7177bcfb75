"""Commands on a machine with MLflow and two exports, `v1` and `v2`, as `tests/golden/machine/SUBJECT.console` has them.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/integration/cli/test_golden_runs.py`; read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.golden import nowhere, play
from fakes.services.embedded_mlflow import write_embedded_mlflow

from tidegate.testing import write_tiny_model

SESSIONS = sorted((Path(__file__).parents[2] / "golden/machine").glob("*.console"))


@pytest.mark.slow(reason="MLflow, and every file of a model")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_a_session_goes_as_it_is_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_embedded_mlflow(tmp_path / ".tidegate")
    for seed in (1, 2):
        write_tiny_model(tmp_path / f"v{seed}", seed=seed)
    nowhere(monkeypatch, tmp_path)
    play(path, monkeypatch, capsys)
