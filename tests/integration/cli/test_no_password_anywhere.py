"""An MLflow that is away or mute: every command ends in time, in a line that says so, and no password is told."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from fakes.terminal import Tidegate

from tidegate.cli import main
from tidegate.cli.project import write_example

PASSWORD = "hunter2-S3cret"
URIS = {
    "server": f"http://ci-bot:{PASSWORD}@127.0.0.1:9/",
    "library's server": f"http://ci-bot:{PASSWORD}@127.0.0.1:9/",
    "database": f"postgresql://ci-bot:{PASSWORD}@127.0.0.1:9/mlflow",
}
COMMANDS = (
    ("deliver", "delivery.yaml", "--ci"),
    ("plan", "delivery.yaml", "--output", "markdown"),
    ("plan", "delivery.yaml", "--debug"),
    ("status", "delivery.yaml"),
    ("report", "delivery.yaml"),
    ("model", "list", "support-llm"),
    ("resume", "0" * 32),
    ("stage", "open", "delivery.yaml"),
)
MORE = (
    ("deliver", "delivery.yaml"),
    ("stage", "build", "--delivery", "0" * 32),
    ("stage", "close", "--delivery", "0" * 32),
    ("approve", "0" * 32, "wave@1", "--by", "ann"),
    ("audit", "verify", "0" * 32),
    ("audit", "verify", "--all", "delivery.yaml"),
)
WITHIN_SECONDS = 300.0
"""For a broken product only: MLflow's own client would wait for eight minutes."""


@pytest.mark.parametrize("kind", URIS)
def test_no_output_no_file_and_no_log_line_has_it(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_example(tmp_path / "delivery.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", URIS[kind])
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    # Then MLflow's own library asks.
    monkeypatch.setenv("MLFLOW_TRACKING_AWS_SIGV4", "true" if kind == "library's server" else "false")
    caplog.set_level(logging.WARNING)
    for command in COMMANDS:
        arguments = [each for each in command if each != "--debug"]
        assert main([*arguments, *(["--state", "state"] if command[0] != "model" else [])]) != 0, command
    told = capfd.readouterr()
    files = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(told.err.splitlines()) >= len(COMMANDS)
    assert [text for text in (told.out, told.err, caplog.text, *files) if PASSWORD in text] == []


@pytest.mark.slow(reason="each command waits for an answer")
def test_every_command_ends_within_its_time_and_says_in_one_line_why(
    tidegate: Tidegate, delivery: Path, mute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mute)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    for command in (*COMMANDS[3:], *MORE):
        begun = time.monotonic()
        said = tidegate(*command)
        took = time.monotonic() - begun
        # What `status` cannot read is a line of what it shows: the regions are there to be seen.
        told = [line for line in (said.out + said.err).splitlines() if f"MLflow store {mute}: no answer" in line]
        assert (said.code, len(told), took < WITHIN_SECONDS) == (4, 1, True), (command, said, took)
