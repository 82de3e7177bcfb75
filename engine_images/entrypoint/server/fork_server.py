"""A process that has imported vLLM, and forks servers from itself: `fork_server DESCRIPTOR MODULE...`.

Two thirds of the CPU time of an eager engine's start on a CPU are imports. Engines of one machine do them once: the
first one starts this process (`fork_client`), which imports the MODULEs and then forks a server for each engine that
asks for one at the listening socket DESCRIPTOR. It ends with the last of them. Nobody notices otherwise:

- A client that ends, in whatever way, takes its server and all that this one started with it; so does our own end.
- Who asks has the same Python and the same variables, but for those that are read after the imports
  (`fork_client.key_of`), and is the same user.
- A server keeps nothing of ours but what was imported: descriptors, variables, folder and arguments are its client's.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

PR_SET_PDEATHSIG = 1

PATIENCE_SECONDS = 10.0
"""For the first client, which started us; and for one that has connected, to say what it wants."""

LARGEST = 1 << 20
"""A request in bytes: arguments and variables."""

MOST_DESCRIPTORS = 64


@dataclass(frozen=True)
class ForkRequest:
    """A server that a client wants."""

    command: list[str]
    """A module and its arguments, as behind `python -m`."""
    environment: dict[str, str]
    folder: str
    numbers: list[int]
    """Descriptors as they are numbered in the client."""
    descriptors: list[int]
    """The same ones here, in this order."""


@dataclass(frozen=True)
class ForkedServer:
    """A fork, and who asked for it."""

    pid: int
    ended: int
    """A descriptor that can be read once it has ended."""
    client: socket.socket


class ForkServer:
    """Forks until the last server has ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._servers: list[ForkedServer] = []

    def run(self) -> ForkRequest | None:
        """Return a request in the process that was forked for it; None in ours, once nobody needs it any more."""
        self._watch(self._listener, self._accept)
        while ready := self._selector.select(None if self._servers else PATIENCE_SECONDS):
            for key, _ in ready:
                request: ForkRequest | None = key.data()
                if request is not None:
                    return request
            if not self._servers:
                break
        return None

    def _watch(self, source: socket.socket | int, then: Callable[[], ForkRequest | None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, then)

    def _accept(self) -> ForkRequest | None:
        client, _ = self._listener.accept()
        client.settimeout(PATIENCE_SECONDS)
        try:
            request = _received(client)
        except (OSError, ValueError):
            client.close()
            return None
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._let_go(client)
            _end_with(parent)
            return request
        for descriptor in request.descriptors:
            os.close(descriptor)
        self._keep(ForkedServer(pid, os.pidfd_open(pid), client))
        return None

    def _keep(self, server: ForkedServer) -> None:
        self._servers.append(server)
        self._watch(server.ended, lambda: self._bury(server))
        self._watch(server.client, lambda: self._obey(server))
        _tell(server.client, {"pid": server.pid})

    def _obey(self, server: ForkedServer) -> None:
        """Hand on a signal; a client that is gone takes its server along."""
        if server not in self._servers:
            # It ended in this very moment.
            return
        try:
            wanted = server.client.recv(LARGEST)
        except OSError:
            wanted = b""
        if wanted:
            os.kill(server.pid, json.loads(wanted)["signal"])
        else:
            self._selector.unregister(server.client)
            _kill(server)

    def _bury(self, server: ForkedServer) -> None:
        _kill(server)
        _, status = os.waitpid(server.pid, 0)
        _tell(server.client, {"ended": os.waitstatus_to_exitcode(status)})
        with suppress(KeyError):
            self._selector.unregister(server.client)
        self._selector.unregister(server.ended)
        os.close(server.ended)
        server.client.close()
        self._servers.remove(server)

    def _let_go(self, client: socket.socket) -> None:
        """In a fork: nothing of ours stays open."""
        self._selector.close()
        for server in self._servers:
            os.close(server.ended)
            server.client.close()
        for each in (client, self._listener):
            each.close()


def _received(client: socket.socket) -> ForkRequest:
    """What a client wants.

    Raises:
        OSError: it is gone, or another user's.
        ValueError: it is no request.
    """
    _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if user != os.getuid():
        raise PermissionError(f"user {user}")
    said, descriptors, _, _ = socket.recv_fds(client, LARGEST, MOST_DESCRIPTORS)
    return ForkRequest(**json.loads(said), descriptors=descriptors)


def _tell(client: socket.socket, what: dict[str, int]) -> None:
    # It may be gone; then we are about to notice.
    with suppress(OSError):
        client.send(json.dumps(what).encode())


def _kill(server: ForkedServer) -> None:
    """All of it: a server leads a group of its own. It is not yet waited for, so that the number is still its own."""
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        # It has just been forked, and leads no group yet.
        os.kill(server.pid, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """In a fork: lead a group of its own, and end when `parent` does."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def become(request: ForkRequest) -> None:
    """Be the process that the client would have been, had it imported everything itself."""
    _take_descriptors(request)
    _take_import_path(os.environ.get("PYTHONPATH", ""), request.environment.get("PYTHONPATH", ""))
    os.environ.clear()
    os.environ.update(request.environment)
    # Where TMPDIR was, while it was imported.
    tempfile.tempdir = None
    os.chdir(request.folder)
    sys.argv[:] = request.command
    name_process(" ".join([sys.executable, "-m", *request.command]))
    runpy.run_module(request.command[0], run_name="__main__", alter_sys=True)


def _take_descriptors(request: ForkRequest) -> None:
    above = max(request.numbers) + 1
    # First all of them out of the way: one may have the number that is another's place.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in request.descriptors]
    for descriptor in request.descriptors:
        os.close(descriptor)
    for descriptor, number in zip(moved, request.numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _take_import_path(ours: str, theirs: str) -> None:
    """What is found by the client's PYTHONPATH is its own, not the first engine's."""
    had, wanted = ours.split(os.pathsep), [path for path in theirs.split(os.pathsep) if path]
    left = {path for path in had if path} - set(wanted)
    sys.path[:] = [*wanted, *(path for path in sys.path if path not in had)]
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None) or ""
        if name != "__main__" and any(origin.startswith(f"{path}{os.sep}") for path in left):
            del sys.modules[name]
    importlib.invalidate_caches()


def preload(modules: Sequence[str]) -> int:
    """Import them; returns with how many threads torch would compute.

    As in `forked`, nothing computes with more than one before a fork.
    """
    import torch

    threads: int = torch.get_num_threads()
    torch.set_num_threads(1)
    # What is imported stays, and is not touched in any fork: its memory is everybody's.
    gc.disable()
    for module in modules:
        # Another vLLM may have others; what is missing is imported by the server, or not at all.
        with suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()
    gc.enable()
    return threads


def name_process(title: str) -> None:
    """For lists of processes, with the library that vLLM has for it."""
    with suppress(ImportError):
        importlib.import_module("setproctitle").setproctitle(title)


def main(arguments: Sequence[str]) -> None:
    """Import, fork, and in a fork: serve."""
    # Before the variables change: the library finds the place of the title next to them.
    name_process("tidegate: fork server of engines")
    listener = socket.socket(fileno=int(arguments[0]))
    threads = preload(arguments[1:])
    request = ForkServer(listener).run()
    if request is not None:
        import torch

        torch.set_num_threads(threads)
        become(request)


if __name__ == "__main__":
    main(sys.argv[1:])
