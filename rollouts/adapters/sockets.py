"""TCP ports of the loopback, and paths of Unix sockets."""

from __future__ import annotations

import random
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rollouts.errors import PortInUse
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


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = random.choice(CHOICE)
        if is_free(port):
            return port


def claim(port: int, *, purpose: str) -> int:
    """`port` itself, when it is free.

    Raises:
        PortInUse: when somebody listens on it.
    """
    if not is_free(port):
        raise PortInUse(f"port {port}, wanted as {purpose}, is in use", hint="stop what uses it, or name another port")
    return port


def is_free(port: int) -> bool:
    """Whether a server could listen on it now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
