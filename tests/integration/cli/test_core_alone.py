"""The wheel in an environment of its own, without any extra."""

from __future__ import annotations

from pathlib import Path

from release import ROOT, build


def test_the_core_runs_alone_and_every_extra_resolves(tmp_path: Path, capfd) -> None:
    build(tmp_path / "dist", ROOT)
    assert "the core runs alone, every extra resolves" in capfd.readouterr().out
    assert sorted(path.suffix for path in (tmp_path / "dist").iterdir() if path.name[0] != ".") == [".gz", ".whl"]
