"""A real MLflow server that takes connections and never answers: every command ends, in one line that says so."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from fakes.services.mlflow_server import AwayServer
from fakes.terminal import Tidegate

from pipelines.adapters.mlflow_triggers import MlflowTriggers
from tidegate.core.errors import ExitCode, OutsideError
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

CALL_SECONDS = 2
WITHIN_SECONDS = 60.0
"""For a broken product only: MLflow's own client would wait for eight minutes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwayServer]:
    with AwayServer.running(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture
def opened(tidegate: Tidegate, delivery: Path, name: str, server: AwayServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A delivery in that server, which does not answer any more."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    delivery.write_text(f"{delivery.read_text()}\npatience: {{call: {CALL_SECONDS}s}}\n")
    for seed, alias in ((1, "champion"), (2, "challenger")):
        folder = write_tiny_model(delivery.parent / alias, seed=seed)
        assert tidegate("model", "add", name, str(folder), "--alias", alias).code == 0
    # What it makes first takes a busy server longer than a call may take from here on.
    with patch.dict(os.environ, {"MLFLOW_HTTP_REQUEST_TIMEOUT": "120"}):
        said = tidegate("stage", "open", "delivery.yaml", "--key", "one")
    assert said.code == 0, said.err
    return said.out.strip()


def test_an_address_that_mlflow_refuses_is_told_with_the_settings_that_allow_it(server: AwayServer) -> None:
    with pytest.raises(OutsideError) as error:
        MlflowTriggers(server.uri).announce("tidegate-support-llm", "http://127.0.0.1:9/", "a secret of some length")
    assert error.value.message.startswith("MLflow refuses http://127.0.0.1:9/: Invalid webhook URL scheme: 'http'")
    assert "MLFLOW_WEBHOOK_ALLOWED_SCHEMES=https,http" in str(error.value)


COMMANDS = ("status delivery.yaml", "deliver delivery.yaml", "stage build --delivery {opened}", "resume {opened}")
OTHERS = (
    *("plan delivery.yaml", "report delivery.yaml", "stage open delivery.yaml", "stage close --delivery {opened}"),
    *("approve {opened} wave@1 --by ann", "audit verify {opened}", "audit verify --all delivery.yaml"),
    "model list {name}",
)


@pytest.mark.slow(reason="an MLflow server of its own, and calls that run out of time")
@pytest.mark.parametrize("commands", [COMMANDS, OTHERS])
def test_every_command_ends_within_its_time_and_says_in_one_line_why(
    tidegate: Tidegate, opened: str, name: str, server: AwayServer, commands: tuple[str, ...]
) -> None:
    server.hang()
    try:
        for command in (each.format(opened=opened, name=name) for each in commands):
            begun = time.monotonic()
            with patch.dict(os.environ):
                said = tidegate(*command.split())
            took = time.monotonic() - begun
            assert said.code == ExitCode.OUTSIDE, f"{command}: {said.code}: {said.err}"
            # What `status` cannot read is a line of what it shows: the regions are there to be seen.
            why = said.out if command.startswith("status") else said.err
            told = [line for line in why.splitlines() if f"MLflow store {server.uri}: no answer" in line]
            assert len(told) == 1, f"{command}: {said.out}{said.err}"
            assert took < WITHIN_SECONDS, f"{command} took {took:.0f} s"
    finally:
        server.answer()
    assert tidegate("status", "delivery.yaml").code in (0, 4)
