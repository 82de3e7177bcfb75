"""Commands as people type them, with all that they print and how they end: `tests/golden/cli/SUBJECT.console`.

In a session `$` is typed, `|` is printed on stdout, `!` on stderr, and `=` is an exit code that is not 0. What is not
tidegate prepares files. After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/cli/test_golden_runs.py`;
read the diff.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.terminal import pipe_in

from tidegate.cli import main

GOLDEN = Path(__file__).parents[2] / "golden/cli"
EXAMPLES = Path(__file__).parents[3] / "examples"
SESSIONS = sorted(GOLDEN.glob("*.console"))


@pytest.fixture
def patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A folder of its own, in which nothing of this machine is known."""
    monkeypatch.chdir(tmp_path)
    # `--trust` sets it for the process: it is put back as it was.
    monkeypatch.setenv("TIDEGATE_TRUST", "")
    for name in [each for each in os.environ if each.startswith(("TIDEGATE_", "MLFLOW_"))]:
        if name not in ("TIDEGATE_REGENERATE", "MLFLOW_LOGGING_LEVEL"):
            monkeypatch.delenv(name)
    for name, value in {"HOME": str(tmp_path), "KUBECONFIG": "", "EXAMPLES": str(EXAMPLES), "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def run(line: str, patches: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """What follows a line of a session."""
    if line.startswith("export "):
        patches.setenv(*line.removeprefix("export ").split("=", 1))
        return
    if not line.startswith("tidegate"):
        subprocess.run(line, shell=True, check=True)
        return
    typed, _, piped = line.partition(" < ")
    if piped:
        pipe_in(patches, Path(piped).read_bytes().splitlines())
    code = main(shlex.split(typed)[1:])
    out, err = capsys.readouterr()
    yield from (f"| {each}".rstrip() for each in out.splitlines())
    yield from (f"! {each}".rstrip() for each in err.splitlines())
    if code:
        yield f"= {code}"


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_a_session_goes_as_it_is_written(
    path: Path, patches: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = path.read_text(encoding="utf-8")
    lines = []
    for line in written.splitlines():
        if line[:1] not in ("|", "!", "="):
            lines.append(line)
            if line.startswith("$ "):
                lines += run(line.removeprefix("$ "), patches, capsys)
    shown = "\n".join([*lines, ""]).replace(str(Path.cwd()), "/here")
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        path.write_text(shown, encoding="utf-8")
        return
    assert shown == written
