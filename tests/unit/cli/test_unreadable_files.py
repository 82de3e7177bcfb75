"""A file that cannot be read or written is one clear line and the exit code of wrong usage, whichever command meets it.

Never 1: a CI that reads it would take the version for a bad one because a disk was read-only.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.cli import main

READERS = (
    "plan {}",
    "deliver {}",
    "doctor {}",
    "status {}",
    "rollback {}",
    "report {}",
    "fleet up {}",
    "serve {}",
    "doctor {} --send-test",
    "slo export {} out",
    "plan {} --weight 5",
    "gate check {} -",
    "rollout render {} --version 1 --image registry.example/llm@sha256:" + "0" * 64 + " --region eu-west-1",
    "rollout diff {} --version 1 --image registry.example/llm@sha256:" + "0" * 64 + " --region eu-west-1",
    "rollout render {} --as workflow",
    "workflow submit {} --version 1",
    "stage open {}",
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", READERS)
def test_a_file_that_is_no_text_is_one_line_with_its_place(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other ways to be no text stand in the golden runs."""
    (tmp_path / "spec.yaml").write_bytes("apiVersion: tidegate/v1\nkind: Delivery\n# où\n".encode("latin-1"))
    code = main(command.format("spec.yaml").split())
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "spec.yaml:3: found bytes that are no UTF-8 (0xf9); expected " in err


def test_a_report_may_go_to_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "gates.yaml").write_text("kind: Gates\napiVersion: tidegate/v1\ngates: {errors: {max_increase: 0.5pp}}")
    (tmp_path / "evidence.jsonl").touch()
    os.mkfifo(tmp_path / "pipe.md")
    reader = os.open(tmp_path / "pipe.md", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["gate", "check", "gates.yaml", "evidence.jsonl", "--report", "pipe.md"]) == 3
        assert os.read(reader, 1 << 16).startswith(b"### gates: inconclusive")
    finally:
        os.close(reader)
    assert (tmp_path / "pipe.md").is_fifo()
