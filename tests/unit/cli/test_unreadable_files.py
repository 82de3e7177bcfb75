"""A file that cannot be read or written is one clear line and the exit code of wrong usage, whichever command meets it.

Never 1: a CI that reads it would take the version for a bad one because a disk was read-only.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.cli import main

SPEC = "apiVersion: tidegate/v1\nkind: Delivery\n# où\n"
UNREADABLE = {
    "utf-16": (SPEC.encode("utf-16"), 1, "UTF-16 text"),
    "latin-1": (SPEC.encode("latin-1"), 3, "bytes that are no UTF-8 (0xf9)"),
    "binary": (b"\x7fELF\x02\x01\x00\xff\xfe", 1, "a binary file"),
    "nul": (b"apiVersion: x\n\0\n", 2, "a binary file"),
}
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
@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_is_no_text_is_one_line_with_its_place(
    command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, line, found = UNREADABLE[kind]
    (tmp_path / "spec.yaml").write_bytes(content)
    code = main(command.format("spec.yaml").split())
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"spec.yaml:{line}: found {found}; expected " in err


@pytest.mark.parametrize("command", READERS)
def test_a_folder_and_a_loop_of_links_are_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("folder", "loop"):
        code = main(command.format(name).split())
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), err
        assert err.count("\n") == 1
        assert name in err


def test_text_with_a_byte_order_mark_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.yaml").write_bytes(SPEC.encode("utf-8-sig"))
    assert main(["plan", "spec.yaml"]) == 2
    assert "spec.yaml:1: metadata: found nothing; expected a value here" in capsys.readouterr().err


@pytest.mark.parametrize("prompts", ["golden.jsonl", "prompts.txt"])
def test_what_a_spec_names_is_text_too(prompts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    capsys.readouterr()
    (tmp_path / prompts).write_bytes("déjà".encode("utf-16"))
    assert main(["plan"]) == 2
    assert f"{prompts}:1: found UTF-16 text; expected " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("file/delivery.yaml", "init file"),
        ("file/slo.yaml", "slo generate slo.yaml file/slo.yaml"),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(
    target: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file stands where a folder should be: no permission of root's gets past that."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "gates.yaml").write_text(GATES)
    (tmp_path / "evidence.jsonl").touch()
    (tmp_path / "slo.yaml").write_text(SLO)
    code = main(command.split())
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] in {f"tidegate: {each}: {why}" for each in ("file", target) for why in WHY}
    assert (tmp_path / "file").read_text() == "mine"


def test_a_report_may_go_to_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "gates.yaml").write_text(GATES)
    (tmp_path / "evidence.jsonl").touch()
    os.mkfifo(tmp_path / "pipe.md")
    reader = os.open(tmp_path / "pipe.md", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["gate", "check", "gates.yaml", "evidence.jsonl", "--report", "pipe.md"]) == 3
        assert os.read(reader, 1 << 16).startswith(b"### gates: inconclusive")
    finally:
        os.close(reader)
    assert (tmp_path / "pipe.md").is_fifo()


WHY = ("not a directory", "file exists")
GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {errors: {max_increase: 0.5pp}}\n"
SLO = """\
version: prometheus/v1
service: chat
slos:
  - name: errors
    objective: 99.9
    sli: {events: {error_query: "sum(rate(e[{{.window}}]))", total_query: "sum(rate(t[{{.window}}]))"}}
    alerting: {page_alert: {disable: true}, ticket_alert: {disable: true}}
"""
