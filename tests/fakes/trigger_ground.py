"""A real MLflow server, which sends real webhooks, and the real `tidegate serve`; each may be gone for a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cryptography.fernet import Fernet
from mlflow import MlflowClient

from fakes.mlflow_server import mlflow_server
from fakes.servers import free_address
from fakes.tiny_model import write_tiny_model
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_models import MlflowRegistry
from registry.model import DeliverySummary
from registry.triggers.signature import DELIVERY_ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tidegate.cli.commands.init import run as write_example

TIDEGATE = Path(sys.executable).with_name("tidegate")
MODEL = "support-llm"
SECRET = "a secret of thirty-two characters"
PATIENCE_SECONDS = 300.0


class TriggerGround:
    """A folder with a delivery.yaml, and the addresses of both servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mlflow, self._receiver = free_address(), free_address()
        self.uri, self.url = f"http://{self._mlflow}", f"http://{self._receiver}"
        self.register = ("--register", f"{self.url}/webhooks/mlflow")
        self._log = folder / "serve.log"
        self._begun: list[subprocess.Popen[bytes]] = []
        self.environment = {name: value for name, value in os.environ.items() if name != "TIDEGATE_STATE"} | {
            "MLFLOW_TRACKING_URI": self.uri,
            "TIDEGATE_WEBHOOK_SECRET": SECRET,
            "TIDEGATE_ENGINE_HOME": str(folder / "no-engine-here"),
        }
        # The first two as docs/triggers.md says for a receiver on a private address.
        self._settings = {
            "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
            "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "https,http",
            "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode(),
            # Else a webhook is new to MLflow only when it looks again, up to a minute later.
            "MLFLOW_WEBHOOK_CACHE_TTL": "1",
        }

    @contextmanager
    def mlflow(self) -> Iterator[None]:
        """MLflow's server, with what it knew when it ran last."""
        with mlflow_server(self.folder / "mlflow", self._mlflow, settings=self._settings):
            yield

    def prepare(self, versions: int) -> None:
        """A champion and its successors; no challenger yet."""
        write_example(self.folder)
        registry = MlflowRegistry(self.uri)
        for seed in range(1, versions + 1):
            registry.register(MODEL, write_tiny_model(self.version_folder(seed), seed=seed))
        registry.set_alias(MODEL, "champion", "1")

    def version_folder(self, version: int) -> Path:
        """Where the files of a version lie."""
        return self.folder / str(version)

    @contextmanager
    def serving(self, *options: str, every: str, path: str = "/readyz") -> Iterator[None]:
        """`tidegate serve` once it answers well at `path`; it must end well."""
        process = self.begin("serve", "delivery.yaml", "--address", self._receiver, "--every", every, *options)
        try:
            self.until(lambda: "ok" in self.fetched(path))
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            # While MLflow is away, a look at it takes its time.
            assert process.wait(PATIENCE_SECONDS) == 0, self.said()

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Any command of tidegate, in the folder; what it says is kept, by command."""
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            begun = subprocess.Popen(
                [str(TIDEGATE), *arguments], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        self._begun.append(begun)
        return begun

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until it holds, or fail with what every command has said."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain\n{self.logs()}"
            time.sleep(0.1)

    def end(self) -> None:
        """End what still runs, as after a test that failed in the middle."""
        for process in self._begun:
            if process.poll() is None:
                process.kill()
            process.wait()

    def logs(self) -> str:
        """What every command said, for whoever reads why a test waited in vain."""
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in sorted(self.folder.glob("*.log")))

    def set_alias(self, version: int) -> float:
        """Make it the challenger; returns the moment, of the monotonic clock."""
        MlflowClient(self.uri).set_registered_model_alias(MODEL, "challenger", str(version))
        return time.monotonic()

    @property
    def deliveries(self) -> MlflowDeliveries:
        return MlflowDeliveries(self.uri)

    def summaries(self) -> list[DeliverySummary]:
        """All deliveries, newest first."""
        return self.deliveries.deliveries(MODEL)

    def said(self) -> str:
        """What `serve` has told until now."""
        return self._log.read_text()

    def posted(self, version: int, *, id: str, age: int = 0, secret: str = SECRET, more: str = "") -> int:
        """The status of the answer to a webhook as MLflow would send it of an alias, by hand."""
        data = {"name": MODEL, "alias": "challenger", "version": str(version), "more": more}
        body = json.dumps({"entity": "model_version_alias", "action": "created", "data": data}).encode()
        at = str(int(time.time()) - age)
        headers = {DELIVERY_ID_HEADER: id, TIMESTAMP_HEADER: at, SIGNATURE_HEADER: sign(secret, id, at, body)}
        try:
            with urlopen(Request(f"{self.url}/webhooks/mlflow", body, headers), timeout=30) as answer:
                return int(answer.status)
        except HTTPError as refusal:
            return refusal.code

    def fetched(self, path: str) -> str:
        """What the receiver answers; nothing when it does not."""
        try:
            with urlopen(self.url + path, timeout=2) as answer:
                return bytes(answer.read()).decode()
        except OSError:
            return ""
