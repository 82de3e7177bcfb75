"""What people see, word for word, in files; and commands as people type them, such as in `golden/cli/plan.console`.

In a session `$` is typed, `|` is printed on stdout, `!` on stderr, and `=` is an exit code that is not 0. What is not
tidegate prepares files, and `NAME=$(tidegate ...)` keeps what one printed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from fakes.terminal import pipe_in
from tidegate.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def is_golden(shown: str, path: Path) -> None:
    """Compare with what stands there; or write it anew, when `TIDEGATE_REGENERATE` is set: then read the diff."""
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


def nowhere(patches: pytest.MonkeyPatch, folder: Path) -> None:
    """Go to a folder of its own, in which nothing of this machine is known."""
    patches.chdir(folder)
    # `--trust` sets it for the process: it is put back as it was.
    patches.setenv("TIDEGATE_TRUST", "")
    for name in [each for each in os.environ if each.startswith(("TIDEGATE_", "MLFLOW_"))]:
        if name not in ("TIDEGATE_REGENERATE", "MLFLOW_LOGGING_LEVEL"):
            patches.delenv(name)
    for name, value in {"HOME": str(folder), "KUBECONFIG": "", "EXAMPLES": str(EXAMPLES), "COLUMNS": "80"}.items():
        patches.setenv(name, value)


def play(
    session: Path,
    patches: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    otherwise: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Type what the session types, and compare what comes of it.

    Args:
        session: the file.
        patches: in whose environment commands run.
        capsys: what they print goes there.
        otherwise: what is another at each run, as regular expressions, and what stands for it.
    """
    stands_for = {re.escape(str(Path.cwd())): "/here", **otherwise}
    lines = []
    for line in session.read_text(encoding="utf-8").splitlines():
        if line[:1] not in ("|", "!", "="):
            lines.append(line)
            if line.startswith("$ "):
                printed = "\n".join(_run(line.removeprefix("$ "), patches, capsys))
                for pattern, word in stands_for.items():
                    printed = re.sub(pattern, word, printed)
                lines += printed.splitlines()
    is_golden("\n".join([*lines, ""]), session)


def _run(line: str, patches: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """What follows a line of a session."""
    if line.startswith("export "):
        patches.setenv(*line.removeprefix("export ").split("=", 1))
        return
    kept = re.fullmatch(r"(\w+)=\$\((tidegate .*)\)", line)
    line = os.path.expandvars(kept[2] if kept else line)
    if not line.startswith("tidegate"):
        subprocess.run(line, shell=True, check=True)
        return
    typed, _, piped = line.partition(" < ")
    if piped:
        pipe_in(patches, Path(piped).read_bytes().splitlines())
    code = main(shlex.split(typed)[1:])
    out, err = capsys.readouterr()
    if kept:
        patches.setenv(kept[1], out.strip())
    yield from (f"| {each}".rstrip() for each in out.splitlines())
    yield from (f"! {each}".rstrip() for each in err.splitlines())
    if code:
        yield f"= {code}"
