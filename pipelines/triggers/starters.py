"""Starts deliveries: as processes of this machine, or as workflows of a cluster."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from pipelines.requests import QueuedRequest
from pipelines.workflow import model as names
from pipelines.workflow.model import is_over, submit
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import WORKFLOWS
from tidegate.core.errors import OutsideError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY


class ProcessStarter:
    """Starts `tidegate deliver`, apart from this process: the one who restarts the receiver stops no delivery."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], logs: Path) -> None:
        """`command` lacks the version only; what it says goes into a file for each try below `logs`."""
        self._command, self._environment, self._logs = tuple(command), dict(environment), logs
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, entry: QueuedRequest) -> str:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._log(entry)
        command = [*self._command, "--version", entry.request.version]
        try:
            with log.open("wb") as output:
                child = subprocess.Popen(
                    command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise OutsideError(
                f"{command[0]} cannot be started: {error.strerror}", hint="check that it is installed and on PATH"
            ) from error
        run = _name(psutil.Process(child.pid))
        # Or it would stay in the process table after its end, for as long as we run.
        threading.Thread(target=child.wait, daemon=True).start()
        self._children[run] = child
        return run

    async def runs(self, entry: QueuedRequest) -> bool:
        if entry.run is None:
            return False
        child = self._children.get(entry.run)
        if child is not None:
            return child.poll() is None
        try:
            return _name(psutil.Process(int(entry.run.split()[1]))) == entry.run
        except psutil.NoSuchProcess:
            return False

    def last_words(self, entry: QueuedRequest) -> str:
        try:
            lines = self._log(entry).read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1].removeprefix("tidegate: ") if lines else ""

    def _log(self, entry: QueuedRequest) -> Path:
        return self._logs / f"{entry.number}-{entry.tries}.log"


def _name(process: psutil.Process) -> str:
    """A process and when it began: the system uses numbers again."""
    return f"process {process.pid} of {process.create_time():.2f}"


class WorkflowStarter:
    """Submits the WorkflowTemplate that is in the cluster, as `argo submit --from workflowtemplate/NAME` does."""

    def __init__(self, client: KubeClient, template: str, namespace: str) -> None:
        self._client, self._template, self._namespace = client, template, namespace

    async def start(self, entry: QueuedRequest) -> str:
        return f"workflow {await submit(self._client, self._template, self._namespace, entry.request.version)}"

    async def runs(self, entry: QueuedRequest) -> bool:
        # By version, not by name: this also finds one whose name was never written down, because a process died.
        found = await self._client.list(WORKFLOWS, labels=f"{DELIVERY}={self._template}")
        return any(_version(each) == entry.request.version and not is_over(each) for each in found)

    def last_words(self, entry: QueuedRequest) -> str:
        return f"see {entry.run}" if entry.run else ""


def _version(found: Json) -> str | None:
    parameters = found["spec"].get("arguments", {}).get("parameters", [])
    return next((each["value"] for each in parameters if each["name"] == names.VERSION), None)
