"""The live page of the real command, and that an open stream does not keep it from ending."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from fakes.delivery.records import delivered
from fakes.services.mlflow_server import MODEL, SECRET, TIDEGATE
from fakes.services.sockets import free_address

from pipelines.adapters.web_server import GRACE_SECONDS
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_store import embedded_uri
from registry.model import ModelVersion
from tidegate.cli.commands.init import write_example


def a_delivery(state: Path, name: str = MODEL) -> str:
    """One that is over, in the embedded ledger; returns its id."""
    digest = "d" * 64
    new, champion = (ModelVersion(name=name, version=each, digest=digest, files={}, size_bytes=1) for each in "21")
    ledger = MlflowDeliveries(embedded_uri(state)).open_delivery(new, champion, spec_digest="x")
    for event in delivered("2"):
        ledger.append(event)
    ledger.close("delivered", "every gate passed")
    return ledger.delivery


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    address = free_address()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "MLFLOW_"))}
    environment["TIDEGATE_WEBHOOK_SECRET"] = SECRET
    command = [str(TIDEGATE), "serve", "delivery.yaml", "--state", str(folder / "state"), "--address", address]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process, address
    finally:
        process.kill()
        process.wait()


def fetched(address: str, path: str) -> tuple[int, str]:
    """Status and text, once the server is there."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with urlopen(f"http://{address}{path}", timeout=60) as answer:
                return int(answer.status), answer.read().decode()
        except HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except OSError:
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.1)


def looked_at(address: str) -> str:
    """The page, once the ledger was looked at: opening it takes a while."""
    deadline = time.monotonic() + 120
    while "Not looked at yet" in (html := fetched(address, "/")[1]):
        assert time.monotonic() < deadline, "the ledger was not looked at"
    return html


def open_stream(address: str) -> tuple[HTTPConnection, HTTPResponse]:
    connection = HTTPConnection(address, timeout=60)
    connection.request("GET", "/events")
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    while b"data:" not in response.readline():
        pass
    return connection, response


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_example(tmp_path)
    return tmp_path


def test_the_page_leads_to_the_report_of_each_delivery_and_of_no_other_model(folder: Path) -> None:
    ours, other = a_delivery(folder / "state"), a_delivery(folder / "state", "another-llm")
    with serving(folder) as (_, address):
        html = looked_at(address)
        assert "support-llm 2 is in production" in html
        assert f'href="deliveries/{ours}"' in html
        status, report = fetched(address, f"/deliveries/{ours}")
        assert status == 200
        assert "Traffic and verdicts over time" in report
        assert '<nav><a href="../">All deliveries</a></nav>' in report
        assert fetched(address, f"/deliveries/{other}")[0] == 404
        assert fetched(address, f"/deliveries/{'0' * 32}")[0] == 404


@pytest.mark.long
def test_a_signal_ends_it_with_streams_open(folder: Path) -> None:
    a_delivery(folder / "state")
    with serving(folder) as (process, address):
        fetched(address, "/healthz")
        connection, response = open_stream(address)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GRACE_SECONDS) == 0
        assert response.read() is not None, "the stream has an end"
        connection.close()
