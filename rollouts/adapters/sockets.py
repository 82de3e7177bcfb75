"""TCP ports of the loopback, and paths of Unix sockets."""

from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
from collections import deque
from contextlib import ExitStack
from pathlib import Path

from rollouts.local.xds import LOOPBACK

LONGEST_SOCKET_PATH = 99
"""In characters. The kernel's own limit is 107 bytes."""


def socket_path(folder: Path, name: str, exits: ExitStack) -> Path:
    """`name` in `folder`, or in a folder of our own (0700) that goes with `exits` where that would be too long."""
    path = folder / name
    if len(str(path)) > LONGEST_SOCKET_PATH:
        path = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-"))) / name
    return path


CHOICE = range(20_000, 32_000)
"""Below the ports that the kernel gives to outgoing connections: it would take one between choice and use."""

_REMEMBERED = 64
"""Ports: more than one process chooses before it uses the first of them."""

_chosen: deque[int] = deque()
"""File descriptors, each of a name that says that a port is chosen."""


def free_port() -> int:
    """A port that nobody listens on, and that no process of tidegate has just chosen."""
    while True:
        port = random.choice(CHOICE)
        if _is_ours(port) and is_free(port):
            return port


def _is_ours(port: int) -> bool:
    """Whether this process was the first to choose it: until a server listens there, any other might do the same."""
    if sys.platform != "linux":
        return True
    # A name in Linux' abstract namespace goes with the process, however that ends.
    with socket.socket(socket.AF_UNIX) as name:
        try:
            name.bind(f"\0tidegate-port-{port}")
        except OSError:
            return False
        _chosen.append(name.detach())
    if len(_chosen) > _REMEMBERED:
        os.close(_chosen.popleft())
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on it now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
