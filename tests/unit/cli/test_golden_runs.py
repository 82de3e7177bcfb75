"""Commands that need nothing but files, as `tests/golden/cli/SUBJECT.console` has them.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/cli/test_golden_runs.py`; read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.golden import nowhere, play

SESSIONS = sorted((Path(__file__).parents[2] / "golden/cli").glob("*.console"))


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_a_session_goes_as_it_is_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere(monkeypatch, tmp_path)
    play(path, monkeypatch, capsys)
