"""Servers that are forks of one process: to their clients, as if each had been started alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine_images.entrypoint.server import fork_client

TORCH = """
threads = 3
def get_num_threads():
    return threads
def set_num_threads(number):
    global threads
    threads = number
"""

HEAVY = """
import os, tempfile
tempfile.gettempdir()
with open(os.environ["IMPORTS"], "a") as imports:
    imports.write("imported\\n")
"""

SERVER = """
import json, os, signal, subprocess, sys, tempfile, time
import heavy, own, torch
child = subprocess.Popen(["sleep", "600"])
if "--descriptor" in sys.argv:
    os.write(int(sys.argv[sys.argv.index("--descriptor") + 1]), b"heard")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "child": child.pid, "argv": sys.argv[1:], "folder": os.getcwd(),
    "late": os.environ["LATE"], "own": own.whose, "threads": torch.get_num_threads(), "name": __name__,
    "temporary": tempfile.gettempdir(),
}), flush=True)
if "--end" in sys.argv:
    child.kill()
    sys.exit(int(sys.argv[sys.argv.index("--end") + 1]))
time.sleep(600)
"""

PATIENCE_SECONDS = 60.0


@dataclass
class Started:
    """A client, and what its server says of itself."""

    process: subprocess.Popen[str]

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@dataclass
class Place:
    """Where engines share a fork server."""

    root: Path
    folder: Path
    begin: Callable[..., Started]

    def imports(self) -> int:
        return len((self.root / "imports").read_text(encoding="utf-8").splitlines())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Modules to import and to serve; whatever was started ends with the test."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for name, text in {"torch": TORCH, "heavy": HEAVY, "server": SERVER}.items():
        (modules / f"{name}.py").write_text(text, encoding="utf-8")
    # A path that the kernel takes for no socket.
    folder = tmp_path / ("long" * 40)
    started: list[Started] = []

    def begin(
        *arguments: str, whose: str = "first", server: str = "server", imported: str = "heavy", **options: Any
    ) -> Started:
        own = tmp_path / whose
        own.mkdir(exist_ok=True)
        (own / "own.py").write_text(f"whose = {whose!r}\n", encoding="utf-8")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            **{"PYTHONPATH": f"{own}:{modules}", "IMPORTS": str(tmp_path / "imports")},
            **{"LATE": whose, "TMPDIR": str(own)},
            **options.pop("environment", {}),
        }
        command = [sys.executable, "-I", "-S", fork_client.__file__, str(folder), imported, "PYTHONPATH,LATE,TMPDIR"]
        process = subprocess.Popen(
            [*command, server, *arguments],
            **{"env": environment, "cwd": own, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
            # Whatever a test expects, what it starts ends with it.
            start_new_session=True,
            **options,
        )
        started.append(Started(process))
        return started[-1]

    yield Place(tmp_path, folder, begin)
    for each in started:
        with suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.communicate(timeout=PATIENCE_SECONDS)


def open_files(said: dict[str, Any]) -> set[int]:
    return {int(number.name) for number in Path(f"/proc/{said['pid']}/fd").iterdir()}


def until_gone(*pids: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.02)


def test_two_servers_import_once_and_share_nothing_else(place: Place) -> None:
    first = place.begin("--name", "a").said()
    second = place.begin("--name", "b", whose="second").said()
    assert place.imports() == 1
    assert first["parent"] == second["parent"]
    assert (first["argv"], second["argv"]) == (["--name", "a"], ["--name", "b"])
    for said, whose in ((first, "first"), (second, "second")):
        assert (said["late"], said["own"], said["folder"]) == (whose, whose, str(place.root / whose))
        assert said["temporary"] == str(place.root / whose)
        # As many as before the imports, when there was to be one.
        assert (said["threads"], said["name"]) == (3, "__main__")


@pytest.mark.long
def test_a_server_has_its_clients_open_files_and_no_others(place: Place) -> None:
    source, sink = os.pipe()
    first = place.begin("--descriptor", str(sink), pass_fds=(sink,)).said()
    os.close(sink)
    assert os.read(source, 5) == b"heard"
    second = place.begin().said()
    assert open_files(first) == {0, 1, 2, sink}
    assert open_files(second) == {0, 1, 2}
    # Nobody else holds it: its end is heard.
    os.kill(first["pid"], signal.SIGKILL)
    assert os.read(source, 5) == b""
    os.close(source)


@pytest.mark.long
def test_servers_of_other_variables_are_forks_of_another_process(place: Place) -> None:
    first = place.begin().said()
    second = place.begin(environment={"OMP_NUM_THREADS": "1"}).said()
    assert place.imports() == 2
    assert first["parent"] != second["parent"]


@pytest.mark.parametrize("code", [0, 5])
def test_the_clients_exit_code_is_its_servers(place: Place, code: int) -> None:
    assert place.begin("--end", str(code)).wait() == code


@pytest.mark.long
def test_a_server_that_a_signal_ends_ends_its_client_by_the_same(place: Place) -> None:
    started = place.begin()
    os.kill(started.said()["pid"], signal.SIGABRT)
    assert started.wait() == -signal.SIGABRT


@pytest.mark.long
def test_sigterm_is_handed_on(place: Place) -> None:
    started = place.begin()
    said = started.said()
    started.process.terminate()
    assert started.wait() == 7
    # What it has left behind ends, too.
    until_gone(said["pid"], said["child"])


def test_a_client_that_is_killed_takes_its_server_along_and_no_other(place: Place) -> None:
    killed, stays = place.begin(), place.begin(whose="second")
    gone, there = killed.said(), stays.said()
    killed.process.kill()
    until_gone(gone["pid"], gone["child"])
    assert psutil.pid_exists(there["pid"])


@pytest.mark.long
def test_a_fork_server_that_is_killed_takes_its_servers_along(place: Place) -> None:
    started = [place.begin(), place.begin(whose="second")]
    said = [each.said() for each in started]
    os.kill(said[0]["parent"], signal.SIGKILL)
    assert [each.wait() for each in started] == [fork_client.CANNOT] * 2
    assert "the fork server ended" in started[0].errors()
    until_gone(*(each["pid"] for each in said))


@pytest.mark.long
def test_it_ends_with_its_last_server_and_the_next_one_starts_another(place: Place) -> None:
    first, second = place.begin(), place.begin(whose="second")
    fork_server = first.said()["parent"]
    second.said()
    first.process.terminate()
    first.wait()
    assert psutil.pid_exists(fork_server)
    second.process.terminate()
    second.wait()
    until_gone(fork_server)
    assert place.begin().said()["parent"] != fork_server
    assert place.imports() == 2


@pytest.mark.long
def test_servers_that_begin_at_once_share_one(place: Place) -> None:
    said = [each.said() for each in [place.begin(whose=str(number)) for number in range(4)]]
    assert len({each["parent"] for each in said}) == 1
    assert place.imports() == 1


@pytest.mark.long
def test_what_the_fork_server_cannot_import_the_server_imports_itself(place: Place) -> None:
    said = place.begin(imported="no_such_module,heavy").said()
    assert said["own"] == "first"
    assert place.imports() == 1


@pytest.mark.long
def test_without_a_fork_server_everything_is_imported_as_ever(place: Place) -> None:
    (place.root / "modules" / "torch.py").write_text("raise OSError('no libgomp')\n", encoding="utf-8")
    (place.root / "modules" / "server.py").write_text("import os\nprint(os.getpid(), flush=True)\n", encoding="utf-8")
    started = place.begin()
    assert started.said() == started.process.pid
    assert started.wait() == 0
    (log,) = place.folder.glob("*.log")
    assert "no libgomp" in log.read_text(encoding="utf-8")


@pytest.mark.long
def test_a_folder_that_cannot_be_made_is_told_and_nothing_is_lost(place: Place) -> None:
    place.folder.write_text("a file", encoding="utf-8")
    started = place.begin("--end", "4")
    assert started.wait() == 4
    assert "everything is imported once more" in started.errors()
