"""A password in an address is in nothing that a command prints or writes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.cli.project import write_example

PASSWORD = "hunter2-S3cret"
URIS = {
    "server": f"http://ci-bot:{PASSWORD}@127.0.0.1:9/",
    "library's server": f"http://ci-bot:{PASSWORD}@127.0.0.1:9/",
    "database": f"postgresql://ci-bot:{PASSWORD}@127.0.0.1:9/mlflow",
}
COMMANDS = (
    ("deliver", "delivery.yaml", "--ci", "--report", "summary.md", "--report", "junit.xml"),
    ("plan", "delivery.yaml", "--output", "markdown"),
    ("plan", "delivery.yaml", "--debug"),
    ("status", "delivery.yaml"),
    ("report", "delivery.yaml"),
    ("model", "list", "support-llm"),
    ("resume", "0" * 32),
    ("stage", "open", "delivery.yaml"),
)


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
