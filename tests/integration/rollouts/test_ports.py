"""Ports that are chosen, and not yet listened on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rollouts.adapters import sockets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that go with their process")

DESCRIPTORS = Path("/proc/self/fd")
FEW = range(19_990, 19_993)
"""Below those that anybody else chooses from."""
ANOTHER = f"""
from rollouts.adapters import sockets
sockets.CHOICE = {FEW!r}
print(sockets.free_port())
"""


def test_no_two_processes_choose_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "CHOICE", FEW)
    ours = {sockets.free_port(), sockets.free_port()}
    # Nobody remembers what a process chose that has ended.
    for _ in range(2):
        said = subprocess.run([sys.executable, "-c", ANOTHER], capture_output=True, text=True, check=True, timeout=60)
        assert ours | {int(said.stdout)} == set(FEW)


def test_what_was_chosen_long_ago_takes_no_file_descriptors() -> None:
    for _ in range(200):
        sockets.free_port()
    before = len(list(DESCRIPTORS.iterdir()))
    for _ in range(200):
        sockets.free_port()
    assert len(list(DESCRIPTORS.iterdir())) == before
