"""The processes of this machine: whose number means what."""

from __future__ import annotations

import socket
from pathlib import Path


def this_machine() -> str:
    """The boot and the PID namespace of this process, as far as the system tells them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        import psutil

        return f"{socket.gethostname()} {psutil.boot_time():.0f}"


def may_act(pid: int) -> bool:
    """Whether there is such a process; one that is dead and waits for its parent to notice may not act."""
    # Needed for a delivery of this machine alone.
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
