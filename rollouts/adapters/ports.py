"""TCP ports of the loopback."""

from __future__ import annotations

import random
import socket

from rollouts.errors import PortInUse
from rollouts.xds import LOOPBACK

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
