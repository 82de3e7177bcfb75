"""A terminal that closes in the middle of a delivery: users go back, though nobody can be told."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.waiting import PATIENCE_SECONDS, until

DELIVERY = """
import asyncio, os, signal, sys
from pathlib import Path
from tidegate.core.process import cancelled_by_signals, note, notes_to
from tidegate.cli.settings import settings

async def delivery():
    async with cancelled_by_signals():
        try:
            Path("on the canary").touch()
            await asyncio.Event().wait()
        finally:
            for turn in range(3):
                note("going back")
                await asyncio.sleep(0.01)
            Path("back").touch()

if "goes on" not in sys.argv:
    # Tests may be run under nohup themselves.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# As a login shell: the terminal is this session's.
os.open(sys.argv[1], os.O_RDWR)
with settings() as chosen, notes_to(chosen.note):
    asyncio.run(delivery())
"""


@pytest.mark.parametrize("nohup", [False, True])
def test_users_go_back_unless_it_was_started_to_go_on(tmp_path: Path, nohup: bool) -> None:
    terminal, its = pty.openpty()
    begin = ["nohup"] if nohup else []
    command = [*begin, sys.executable, "-c", DELIVERY, os.ttyname(its), *(["goes on"] if nohup else [])]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=its, stdout=its, stderr=its, start_new_session=True)
    try:
        os.close(its)
        until("it begins", lambda: (tmp_path / "on the canary").exists() or process.poll() is not None)
        os.close(terminal)
        if nohup:
            process.terminate()
        process.wait(PATIENCE_SECONDS)
        assert (tmp_path / "back").exists()
        if nohup:
            # Nothing was heard before it was told to end.
            assert (tmp_path / "nohup.out").read_text().startswith("stopping: every region goes back first\ngoing back")
    finally:
        process.kill()
        process.wait()
