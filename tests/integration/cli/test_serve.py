"""`tidegate serve` as a process beside a real MLflow server, which sends real webhooks and may be gone for a while.

Deliveries are real ones too; since there is no engine environment here, each opens its ledger and ends as failed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from fakes.mlflow_server import mlflow_server
from fakes.servers import free_address
from fakes.tiny_model import write_tiny_model
from mlflow import MlflowClient

from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.mlflow_store import embedded_uri
from registry.errors import DeliveryRuns
from registry.model import DeliverySummary
from registry.triggers.payload import DELIVER_TAG
from registry.triggers.signature import DELIVERY_ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tidegate.cli.commands.init import run as write_example

pytestmark = pytest.mark.timeout(600)
TIDEGATE = Path(sys.executable).with_name("tidegate")
MODEL = "support-llm"
SECRET = "a secret of thirty-two characters"
PATIENCE_SECONDS = 120.0


class Ground:
    """One MLflow, which can be restarted, and a receiver, which can be too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mlflow, self.receiver = free_address(), free_address()
        self.uri = f"http://{self.mlflow}"
        self.log = folder / "serve.log"

    def prepare(self) -> None:
        """A champion and two more versions; no challenger yet."""
        write_example(self.folder)
        registry = MlflowRegistry(self.uri)
        for seed in (1, 2, 3):
            registry.register(MODEL, write_tiny_model(self.folder / str(seed), seed=seed))
        registry.set_alias(MODEL, "champion", "1")

    @contextmanager
    def serving(self, *options: str, every: str = "1h") -> Iterator[subprocess.Popen[bytes]]:
        """The command, once it is ready."""
        command = [str(TIDEGATE), "serve", "delivery.yaml", "--address", self.receiver, "--every", every, *options]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stderr=log)
        try:
            until(lambda: b"ok" in fetched(f"http://{self.receiver}/readyz"))
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "MLFLOW_TRACKING_URI": self.uri,
            "TIDEGATE_WEBHOOK_SECRET": SECRET,
            "TIDEGATE_ENGINE_HOME": str(self.folder / "no-engine-here"),
        }

    @property
    def register(self) -> tuple[str, str]:
        return ("--register", f"http://{self.receiver}/webhooks/mlflow")

    def set_alias(self, version: int) -> float:
        MlflowClient(self.uri).set_registered_model_alias(MODEL, "challenger", str(version))
        return time.monotonic()

    def webhook(self, version: int) -> int:
        """As MLflow's server sends it, which an embedded store has not; returns the answer's status."""
        data = {"name": MODEL, "alias": "challenger", "version": str(version)}
        body = json.dumps({"entity": "model_version_alias", "action": "created", "data": data}).encode()
        id, at = uuid4().hex, str(int(time.time()))
        signed = {DELIVERY_ID_HEADER: id, TIMESTAMP_HEADER: at, SIGNATURE_HEADER: sign(SECRET, id, at, body)}
        with urlopen(Request(self.register[1], body, signed), timeout=30) as answer:
            return int(answer.status)

    def deliveries(self) -> list[DeliverySummary]:
        return MlflowDeliveries(self.uri).deliveries(MODEL)

    def said(self) -> str:
        return self.log.read_text()


def fetched(url: str) -> bytes:
    try:
        with urlopen(url, timeout=2) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    # As docs/triggers.md says for a receiver on a private address.
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS", "true")
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOWED_SCHEMES", "https,http")
    monkeypatch.setenv("MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY", Fernet.generate_key().decode())
    # Else a webhook is new to MLflow only when it looks again, up to a minute later.
    monkeypatch.setenv("MLFLOW_WEBHOOK_CACHE_TTL", "1")
    monkeypatch.delenv("TIDEGATE_STATE", raising=False)
    return Ground(tmp_path)


def test_an_alias_starts_a_delivery_once_and_a_tag_that_nobody_heard_of_is_found(ground: Ground) -> None:
    with mlflow_server(ground.folder / "mlflow", ground.mlflow):
        ground.prepare()
        with ground.serving(*ground.register):
            until(lambda: "test event was answered 200" in ground.said())
            at = ground.set_alias(2)
            until(lambda: "@challenger: started" in ground.said())
            print(f"from alias to start: {time.monotonic() - at:.2f} s")
            until(ground.deliveries)
            print(f"from alias to open ledger: {time.monotonic() - at:.2f} s")
            until(lambda: all(each.ended for each in ground.deliveries()))
            ground.set_alias(2)
            until(lambda: 'outcome="duplicate"} 1.0' in fetched(f"http://{ground.receiver}/metrics").decode())
        MlflowClient(ground.uri).set_model_version_tag(MODEL, "3", DELIVER_TAG, "challenger")
    # MLflow's own tries ended with it; the receiver was not there. What is left is what the registry says.
    with mlflow_server(ground.folder / "mlflow", ground.mlflow), ground.serving(every="1s"):
        until(lambda: "models:/support-llm/3@challenger: found in the registry" in ground.said())
        until(lambda: any(each.version == "3" and each.ended for each in ground.deliveries()))
        until(lambda: re.search(r"/3@challenger: over: delivery \w+: failed", ground.said()))
        assert [each.version for each in ground.deliveries()] == ["3", "2"]


def test_a_version_that_is_promoted_three_times_at_once_has_one_delivery(ground: Ground) -> None:
    ground.uri = embedded_uri(ground.folder)
    ground.prepare()
    registry, deliveries = MlflowRegistry(ground.uri), MlflowDeliveries(ground.uri)
    two, champion = registry.resolve(MODEL, "2"), registry.resolve(MODEL, "1")

    def by_hand(_: int) -> str | None:
        try:
            return deliveries.open_delivery(two, champion, spec_digest="x").delivery
        except DeliveryRuns:
            return None

    with ground.serving(every="1s"), ThreadPoolExecutor(2) as hands:
        opening = hands.map(by_hand, range(2))
        ground.set_alias(2)
        assert ground.webhook(2) in {200, 202}
        opened = [each for each in opening if each is not None]
        until(lambda: re.search(r"/2@challenger: (started|over): delivery \w+", ground.said()))
        for delivery in opened:
            deliveries.join(delivery).close("rolled-back", "for the test")
        until(lambda: "/2@challenger: over" in ground.said())
    assert len(ground.deliveries()) == 1


def test_a_secret_that_could_be_guessed_is_refused(ground: Ground) -> None:
    write_example(ground.folder)
    environment = ground.environment | {"TIDEGATE_WEBHOOK_SECRET": "short"}
    command = [str(TIDEGATE), "serve", "delivery.yaml"]
    said = subprocess.run(command, cwd=ground.folder, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "TIDEGATE_WEBHOOK_SECRET has 5 characters; expected at least 16" in said.stderr
