"""MLflow's own tracking server, which hands out artifacts and calls webhooks, and `tidegate serve` for these."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.request import urlopen

import psutil
from cryptography.fernet import Fernet
from fakes.engines.vllm_home import write_vllm_home
from fakes.services.embedded_mlflow import write_tables
from fakes.services.shared import shared
from fakes.services.sockets import begun, end, free_address
from fakes.waiting import PATIENCE_SECONDS, until

from registry.deliveries import MlflowDeliveries
from registry.mlflow_client import open_client
from registry.model import DeliverySummary
from registry.versions import MlflowRegistry
from tidegate.cli.project import write_example
from tidegate.testing import write_tiny_model

STORES = {"mlflow": "tracking_uri", "mlflow server": "server"}
"""Each way to MLflow, with the fixture that has its address."""
# Seven processes that no test needs, each of which loads all of MLflow.
NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
# The first two as docs/guides/triggers.md says for a receiver on a private address.
WEBHOOKS = {
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "https,http",
    "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode(),
    # Else a webhook is new to MLflow only when it looks again, up to a minute later.
    "MLFLOW_WEBHOOK_CACHE_TTL": "1",
    # Anyone who has ended is not called any more: another server may have its port.
    "MLFLOW_WEBHOOK_REQUEST_MAX_RETRIES": "0",
}

PASSWORD = "correct-horse-battery"
AUTH = """[mlflow]
default_permission = READ
database_uri = sqlite:///{folder}/auth.db
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


@contextmanager
def guarded_mlflow_server(folder: Path, *, options: Sequence[str] = (), scheme: str = "http") -> Iterator[str]:
    """One that asks for a name and password, which its address has."""
    (folder / "auth.ini").write_text(AUTH.format(folder=folder))
    settings = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of no account",
    }
    words = ("--app-name", "basic-auth", *options)
    with mlflow_server(folder, settings=settings, options=words, scheme=scheme) as uri:
        yield uri.replace("//", f"//admin:{PASSWORD}@")


@contextmanager
def mlflow_server(
    folder: Path,
    address: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    bucket: str | None = None,
    options: Sequence[str] = (),
    scheme: str = "http",
) -> Iterator[str]:
    """Its tracking URI while it runs; `folder` outlives it, and so may `address`, a free one otherwise.

    `settings` are environment variables of the server alone; with `bucket`, an address, it hands out no files itself.
    With `options`, more words of its command line, it is started by MLflow's own command.
    """
    address = address or free_address()
    process, uri = _begun(folder, address, settings=settings, bucket=bucket, options=options, scheme=scheme)
    try:
        yield uri
    finally:
        end(process)


def shared_mlflow_server() -> str:
    """The tracking URI of one that calls webhooks, for all processes of a test run: names keep tests apart."""
    return shared("mlflow", lambda folder: _begun(folder, free_address(), settings=WEBHOOKS))


def _begun(
    folder: Path,
    address: str,
    *,
    settings: Mapping[str, str] | None = None,
    bucket: str | None = None,
    options: Sequence[str] = (),
    scheme: str = "http",
) -> tuple[subprocess.Popen[bytes], str]:
    folder.mkdir(parents=True, exist_ok=True)
    host, _, port = address.partition(":")
    own: Mapping[str, str]
    if options:
        own = {}
        command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
        command += ["--artifacts-destination", str(folder / "artifacts"), "--serve-artifacts", *options]
    else:
        own = _told(folder, bucket)
        command = [sys.executable, "-m", "uvicorn", "--host", host, "--port", port, "mlflow.server.fastapi_app:app"]
    if not (folder / "mlflow.db").exists():
        write_tables(folder / "mlflow.db")
        with sqlite3.connect(folder / "mlflow.db") as tables:
            root = bucket or "mlflow-artifacts:"
            tables.execute("UPDATE experiments SET artifact_location = ?", (f"{root.rstrip('/')}/0",))
        tables.close()
    uri, log = f"{scheme}://{address}", folder / "server.log"
    every = {**NO_JOBS, **own, **(settings or {})}
    process = begun(command, ready=f"{uri}/health", log=log, settings=every)
    return process, uri


def _told(folder: Path, bucket: str | None) -> dict[str, str]:
    """What MLflow's own command, which loads all of MLflow once more, tells the server that it starts."""
    store = {"_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder / 'mlflow.db'}", "_MLFLOW_SGI_NAME": "uvicorn"}
    if bucket:
        return store | {"_MLFLOW_SERVER_ARTIFACT_ROOT": bucket}
    return store | {
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "artifacts"),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
    }


class AwayServer:
    """A tracking server that may be stopped or ended, and come back at the same address with all that it knew."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.address = address or free_address()
        self._folder, self._runs = folder, ExitStack()

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Iterator[Self]:
        """One that is up, and ended with the context."""
        server = cls(folder)
        server.start()
        yield server
        server.end()

    @property
    def uri(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        """Bring it up, and return once it answers."""
        self._runs.enter_context(mlflow_server(self._folder, self.address))

    def end(self) -> None:
        """Nobody listens at its address any more; returns when that is so."""
        self.answer()
        self._runs.close()

    def hang(self) -> None:
        """It takes connections and never answers."""
        hang(self.address)

    def answer(self) -> None:
        """Undo `hang`."""
        answer(self.address)


def hang(address: str) -> None:
    """Stop everything that serves there and that this process has started; returns once it stands still."""
    _send(signal.SIGSTOP, address)
    while any(_runs(process) for process in _serving(address)):
        time.sleep(0.01)


def answer(address: str) -> None:
    """Undo `hang`."""
    _send(signal.SIGCONT, address)


def _send(number: signal.Signals, address: str) -> None:
    for process in _serving(address):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _serving(address: str) -> list[psutil.Process]:
    """The server and its workers."""
    port = address.rpartition(":")[2]
    mine = [each for each in psutil.Process().children(recursive=True) if _serves(each, port)]
    return list(dict.fromkeys(one for each in mine for one in (each, *_descendants(each))))


def _serves(process: psutil.Process, port: str) -> bool:
    with suppress(psutil.Error):
        words = process.cmdline()
        return "mlflow" in " ".join(words) and port in words
    return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


TIDEGATE = Path(sys.executable).with_name("tidegate")
SECRET = "a secret of thirty-two characters"


class TriggerGround:
    """A folder with a delivery.yaml of a model that no other test uses, and the addresses of both servers."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self._receiver = free_address()
        self.uri, self.url = shared_mlflow_server(), f"http://{self._receiver}"
        self.register = ("--register", f"{self.url}/webhooks/mlflow")
        self._log = folder / "serve.log"
        self.environment = {name: value for name, value in os.environ.items() if name != "TIDEGATE_STATE"} | {
            "MLFLOW_TRACKING_URI": self.uri,
            "TIDEGATE_WEBHOOK_SECRET": SECRET,
            "TIDEGATE_ENGINE_HOME": str(write_vllm_home(folder / "engine")),
        }
        # A delivery begins, and ends at its first engine.
        (folder / "engine" / "bin" / "python").unlink()

    def prepare(self, versions: int) -> None:
        """A champion and its successors; no challenger yet."""
        write_example(self.folder / "delivery.yaml")
        spec = self.folder / "delivery.yaml"
        spec.write_text(spec.read_text().replace("model: {name: support-llm", f"model: {{name: {self.model}"))
        registry = MlflowRegistry(self.uri)
        for seed in range(1, versions + 1):
            registry.register(self.model, write_tiny_model(self.version_folder(seed), seed=seed))
        registry.set_alias(self.model, "champion", "1")

    def version_folder(self, version: int) -> Path:
        """Where the files of a version lie."""
        return self.folder / str(version)

    @contextmanager
    def serving(self, *options: str, every: str) -> Iterator[None]:
        """`tidegate serve` once it is ready; it must end well, and is not called any more."""
        words = ("serve", "delivery.yaml", "--address", self._receiver, "--every", every, *options)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [str(TIDEGATE), *words], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )
        try:
            self.until(lambda: "ok" in self.fetched("/readyz"))
            yield
        finally:
            self._forget_webhooks()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0, self.said()

    def _forget_webhooks(self) -> None:
        client = open_client(self.uri)
        for webhook in client.list_webhooks():
            if webhook.url.startswith(self.url):
                client.delete_webhook(webhook.webhook_id)

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until it holds, or fail with what every command has said."""
        try:
            until("what it was asked for", lambda: bool(holds()))
        except AssertionError as error:
            raise AssertionError(self.said()) from error

    def set_alias(self, version: int) -> None:
        """Make it the challenger."""
        open_client(self.uri).set_registered_model_alias(self.model, "challenger", str(version))

    @property
    def deliveries(self) -> MlflowDeliveries:
        return MlflowDeliveries(self.uri)

    def summaries(self) -> list[DeliverySummary]:
        """All deliveries, newest first."""
        return self.deliveries.deliveries(self.model)

    def said(self) -> str:
        """What `serve` has told until now."""
        return self._log.read_text()

    def fetched(self, path: str) -> str:
        """What the receiver answers; nothing when it does not."""
        try:
            with urlopen(self.url + path, timeout=30) as answer:
                return bytes(answer.read()).decode()
        except OSError:
            return ""
