"""The files in `examples/slo/exported` are those that the command writes.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/slo/export/test_example.py`, then read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.cli import main

EXAMPLE = Path(__file__).parents[4] / "examples" / "slo"


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_exported_example_is_current(tmp_path: Path) -> None:
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        main(["slo", "export", str(EXAMPLE / "delivery.yaml"), "-o", str(EXAMPLE / "exported")])
    assert main(["slo", "export", str(EXAMPLE / "delivery.yaml"), "-o", str(tmp_path)]) == 0
    assert contents(EXAMPLE / "exported") == contents(tmp_path)
