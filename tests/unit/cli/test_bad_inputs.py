"""Every kind of bad input to every command that reads a file: a documented exit code, and nothing lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Never

import pytest
from fakes.bodies import BODIES

from engine_images.adapters.oci_layout import INDEX_FILE, LAYOUT_FILE, OciLayout
from engine_images.oci.model import CONFIG, LAYER, MANIFEST, canonical
from tidegate.cli import main
from tidegate.core.errors import ExitCode

LONGEST_SECONDS = 120
"""Of one command, on a machine that is busy; a hang has no end."""

DOCUMENTED = set(ExitCode) - {ExitCode.INTERNAL, ExitCode.INTERRUPTED, ExitCode.NO_READER}
ODD = [b"\n" * 5000, "\u202e::error::\ud7ff".encode(), b"::add-mask::x\n", b"a: 1\na: 1\n", b"kind: Pipeline\n"]
"""Besides bodies that every reader of documents meets."""


class Hang(BaseException):
    """No command may catch it."""


def _hang(number: int, frame: FrameType | None) -> Never:
    raise Hang


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """In a folder with the files of `tidegate init`; no cluster or store of this machine is met."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = signal.signal(signal.SIGALRM, _hang)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def file(name: str, *arguments: str) -> Callable[[bytes], list[str]]:
    """The command meets the body as that file."""

    def written(body: bytes) -> list[str]:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(body)
        return list(arguments)

    return written


def layout(body: bytes) -> list[str]:
    """As the manifest of an image."""
    there = OciLayout(Path("layout"))
    there.name(there.put(body, MANIFEST), "x")
    return ["engine", "show", "oci:layout:x"]


def configuration(body: bytes) -> list[str]:
    """As the configuration of an image."""
    there = OciLayout(Path("layout"))
    blobs = {"config": there.put(body, CONFIG).to_dict(), "layers": [there.put(b"", LAYER).to_dict()]}
    there.name(there.put(canonical(blobs), MANIFEST), "x")
    return ["engine", "show", "layout"]


def index(body: bytes) -> list[str]:
    """As the index of a layout."""
    file(f"layout/{LAYOUT_FILE}")(b"{}")
    return file(f"layout/{INDEX_FILE}", "engine", "show", "./layout")(body)


COMMANDS: dict[str, Callable[[bytes], list[str]]] = {
    "spec": file("delivery.yaml", "plan", "--offline"),
    "spec to render": file("delivery.yaml", "rollout", "render", "--as", "workflow"),
    "golden set": file("golden.jsonl", "plan", "--offline"),
    "prompts": file("prompts.txt", "plan", "--offline"),
    "trust file": file("trust.yaml", "plan", "--offline"),
    "evidence": file("e.jsonl", "gate", "check", "delivery.yaml", "e.jsonl"),
    "gates": file("g.yaml", "plan", "g.yaml"),
    "SLOs": file("s.yaml", "slo", "validate", "s.yaml"),
    "kubeconfig": file("k", "init", "new.yaml", "--from-rollout", "llm", "--kubeconfig", "k"),
    "image": layout,
    "configuration of an image": configuration,
    "index of images": index,
}


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_no_bad_input_is_a_bug_hangs_or_loses_anything(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init"]) == 0
    for body in [*BODIES, *ODD]:
        arguments = COMMANDS[name](body)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        signal.alarm(LONGEST_SECONDS)
        code = main(arguments)
        signal.alarm(0)
        told = capsys.readouterr()
        assert code in DOCUMENTED, (body[:80], code, told.err[-500:])
        assert not any(line.lstrip().startswith("::") for line in (told.out + told.err).splitlines()), body[:80]
        left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert {path: left.get(path) for path in before} == before, body[:80]
