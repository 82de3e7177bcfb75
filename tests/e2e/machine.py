"""A machine for one state folder: the commands that a person would type, and what they leave behind on it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from fakes.services.embedded_mlflow import write_embedded_mlflow
from fakes.waiting import PATIENCE_SECONDS, until

from registry.deliveries import MlflowDeliveries
from registry.versions import MlflowRegistry
from rollouts.adapters import host_client
from rollouts.model import RegionState

TIDEGATE = str(Path(sys.executable).with_name("tidegate"))


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """What it said on stderr, which must be one line."""
        assert self.err.count("\n") == 1, f"not one line:\n{self.err}"
        return self.err.rstrip("\n")


class Command:
    """A command that was typed, perhaps still running."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self._process = process
        self._out = out
        self._err = err
        self.pid = process.pid

    @classmethod
    def typed(cls, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Command:
        """Type a command of tidegate in that folder and let it run; what it says is kept there, by number."""
        number = len(list(folder.glob("command-*.out"))) + 1
        out, err = (folder / f"command-{number}.{stream}" for stream in ("out", "err"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                # Tests that somebody started with nohup must not hand that on.
                ["env", "--default-signal=HUP,QUIT", TIDEGATE, *arguments],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                start_new_session=True,
            )
        return cls(process, out, err)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def err(self) -> str:
        """What it has said on stderr so far."""
        return self._err.read_text(encoding="utf-8")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def finish(self) -> Finished:
        """Wait for its end."""
        code = self._process.wait(timeout=2 * PATIENCE_SECONDS)
        return Finished(code, self._out.read_text(encoding="utf-8"), self.err)


class Machine:
    """A folder with a spec in it, its state folder, and whatever runs for that state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.tracking_uri = write_embedded_mlflow(self.state)
        self.registry = MlflowRegistry(self.tracking_uri)
        self.deliveries = MlflowDeliveries(self.tracking_uri)

    def start(self, *arguments: str) -> Command:
        """Type a command and let it run."""
        # In the environment, not among the arguments: so it marks every descendant, too.
        return Command.typed(arguments, self.folder, {"CI": "1", "TIDEGATE_STATE": str(self.state)})

    def tidegate(self, *arguments: str) -> Finished:
        """Type a command and wait for its end."""
        return self.start(*arguments).finish()

    def region(self, name: str) -> RegionState | None:
        """What the fleet host says of the region; None when no fleet runs here."""
        return asyncio.run(self._observe(name))

    async def _observe(self, name: str) -> RegionState | None:
        host = await host_client.attach(self.state)
        if host is None:
            return None
        try:
            return await host.fleet(name).observe()
        finally:
            await host.close()

    def processes(self) -> list[psutil.Process]:
        """Everything alive that was started, directly or not, by a command typed here."""
        return list(self._processes())

    def _processes(self) -> Iterator[psutil.Process]:
        mine = str(self.state)
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("TIDEGATE_STATE") == mine:
                    yield process
            except psutil.Error:
                continue  # it ended while we looked, or is another user's

    def nothing_runs(self) -> None:
        """Fails when something is left, after all that is about to end has had its time."""
        until(f"everything of {self.state} has ended", lambda: not self.processes())
