"""vLLM as a child of ours, with the gate's end of the channel."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .exits import OutsideMissing

GUARD = Path(__file__).resolve().with_name("guard.py")

ENDING_SECONDS = 10.0
"""For vLLM to end once it is told to, with nothing open."""


class Child:
    """The guard's process, and through it vLLM's."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], workdir: Path, channel: socket.socket
    ) -> Child:
        """Start `command`; it inherits `channel` under the same descriptor."""
        process = await asyncio.create_subprocess_exec(
            # -I and -S: the guard runs nothing that a folder or the environment names.
            *(sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *command),
            env=dict(environment),
            cwd=workdir,
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(channel.fileno(),),
            # A group of its own: neither a Ctrl-C nor a signal to our group ends vLLM before it has drained.
            start_new_session=True,
        )
        return cls(process)

    async def ended(self) -> int:
        """Its exit code, once it has one."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Tell it to end, and see to it that nothing of it stays. Bounded."""
        if self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait({asyncio.ensure_future(self._process.wait())}, timeout=ENDING_SECONDS)
        self.kill()
        await self._process.wait()

    def kill(self) -> None:
        """End all of it now."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            # Nobody is left.
            return


def require_free(host: str, port: int) -> None:
    """Return when we may listen there.

    vLLM would tell only after a minute of loading, with a traceback.

    Raises:
        OutsideMissing: another process listens there, or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OutsideMissing(f"port {port} of {host} cannot be taken: {error.strerror}") from error
