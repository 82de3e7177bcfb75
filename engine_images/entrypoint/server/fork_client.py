"""Runs a module in a fork of a process that has imported it: `fork_client.py FOLDER MODULES OWN MODULE ARGUMENT...`.

To the one who starts it, it is as if it were `python -m MODULE ARGUMENT...`: it passes on its descriptors, variables
and folder, takes SIGTERM for its server, ends with the same code or by the same signal, and what ends it ends the
server.
Where there is no fork server in FOLDER for this Python and these variables, it starts one, which imports MODULES;
where that fails, it becomes MODULE itself. OWN names variables in which engines may differ, since they are read late.
It imports nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

SERVER = Path(__file__).resolve().with_name("fork_server.py")

LARGEST = 1 << 16

CANNOT = 1
"""Our exit code when the fork server ends before its server."""


def main(arguments: Sequence[str]) -> int:
    """Ask for a fork, and be it; returns its exit code."""
    folder, modules, own, *command = arguments
    key = key_of(modules, os.environ, own.split(","))
    try:
        with _connected(Path(folder), key, modules.split(",")) as connection:
            code = _served(connection, command)
    except OSError as error:
        print(f"no fork server, so everything is imported once more: {error}", file=sys.stderr, flush=True)
        code = None
    if code is None:
        os.execv(sys.executable, [sys.executable, "-m", *command])
    if code < 0:
        _end_by(-code)
    return code


def key_of(modules: str, environment: Mapping[str, str], own: Iterable[str]) -> str:
    """What decides whether two engines may be forks of one process: their Python, their variables and this code."""
    shared = sorted((name, value) for name, value in environment.items() if name not in {*own, "PWD", "OLDPWD", "_"})
    sources = [path.read_text(encoding="utf-8") for path in (SERVER, Path(__file__))]
    return hashlib.sha256(json.dumps([sys.executable, modules, shared, sources]).encode()).hexdigest()[:16]


def _connected(folder: Path, key: str, modules: Sequence[str]) -> socket.socket:
    """A connection to the fork server of that key, which is started where there is none.

    Raises:
        OSError: it cannot be.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # The kernel takes no more than 107 bytes for the path of a socket.
        path = f"/proc/self/fd/{opened}/{key}.sock"
        # Of two engines that start at once, one starts it.
        fcntl.flock(opened, fcntl.LOCK_EX)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            (folder / f"{key}.sock").unlink(missing_ok=True)
            _start(path, folder / f"{key}.log", modules)
            connection.connect(path)
    finally:
        os.close(opened)
    return connection


def _start(path: str, log: Path, modules: Sequence[str]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, log.open("wb") as output:
        listener.bind(path)
        listener.listen()
        subprocess.Popen(
            # As the server would be: the variables say where to import from.
            [sys.executable, str(SERVER), str(listener.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ours goes with its engine.
            cwd="/",
            pass_fds=(listener.fileno(),),
            # It outlives us while others need it.
            start_new_session=True,
        )


def _served(connection: socket.socket, command: Sequence[str]) -> int | None:
    """The exit code of the fork, negative for a signal; None when there was none."""
    numbers = _descriptors(connection.fileno())
    wanted = {"command": list(command), "environment": dict(os.environ), "folder": str(Path.cwd()), "numbers": numbers}
    socket.send_fds(connection, [json.dumps(wanted).encode()], numbers)
    begun = _heard(connection)
    if begun is None:
        return None

    def hand_on(number: int, _: object) -> None:
        connection.send(json.dumps({"signal": number}).encode())

    signal.signal(signal.SIGTERM, hand_on)
    ended = _heard(connection)
    if ended is None:
        # The server ends with it; what the server has started does so by us.
        with suppress(ProcessLookupError):
            os.killpg(begun["pid"], signal.SIGKILL)
        print("the fork server ended, and with it this engine", file=sys.stderr, flush=True)
        return CANNOT
    return ended["ended"]


def _descriptors(without: int) -> list[int]:
    """What is open here, and meant for the server: what we were given, and not what we opened since."""
    numbers = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return sorted(number for number in numbers if number != without and _inherited(number))


def _inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        # Of the listing itself.
        return False


def _heard(connection: socket.socket) -> dict[str, int] | None:
    try:
        said = connection.recv(LARGEST)
    except ConnectionError:
        return None
    heard: dict[str, int] | None = json.loads(said) if said else None
    return heard


def _end_by(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
