"""What `tidegate completion` prints completes in the shells themselves, set up as its help says."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alike import one_of
from fakes.waiting import PATIENCE_SECONDS

TIDEGATE = Path(sys.executable).with_name("tidegate")
TYPED = {
    "tidegate stat": "status",
    "tidegate gate co": "compare",
    "tidegate completion z": "zsh",
    "tidegate status --la": "--last",
}


@pytest.fixture
def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{TIDEGATE.parent}{os.pathsep}{os.environ['PATH']}", "PS1": "> ", "TERM": "dumb"}


def script(shell: str) -> str:
    return subprocess.run([TIDEGATE, "completion", shell], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def zsh(tmp_path: Path, environment: dict[str, str]) -> Iterator[int]:
    """The terminal of a zsh that finds the script in `fpath`, as compinit does."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions/_tidegate").write_text(script("zsh"))
    outer, inner = pty.openpty()
    # A session of its own, so that the shell takes the terminal.
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=tmp_path,
        start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    os.write(outer, b"fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\n")
    until(outer, b"ready\r\n")
    yield outer
    shell.kill()
    shell.wait()
    os.close(outer)


def until(terminal: int, wanted: bytes) -> bytes:
    """What the terminal shows up to `wanted`, or in all of `PATIENCE_SECONDS`."""
    shown, deadline = b"", time.monotonic() + PATIENCE_SECONDS
    while wanted not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096)
    return shown


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
@pytest.mark.parametrize(
    ("typed", "offered"), [pytest.param(*pair, marks=one_of(4, number)) for number, pair in enumerate(TYPED.items())]
)
def test_zsh_completes_at_the_first_tab(zsh: int, typed: str, offered: str) -> None:
    whole = f"{typed.rpartition(' ')[0]} {offered} ".encode()
    os.write(zsh, f"{typed}\t".encode())
    assert whole in until(zsh, whole)
