"""Bad input, and what is not there: one clear line, the right exit code, nothing left running, the ledger closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.given import register, write_export
from e2e.machine import Machine
from e2e.spec import MODEL, write_spec
from fakes.engines.nvidia_smi import path_with_gpus
from fakes.terminal import Said, Tidegate

from registry.model import Alias


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A champion and a challenger, and no fleet."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    write_spec(machine.folder)
    register(machine, seed=0, alias=Alias.CHAMPION)
    register(machine, seed=1, alias=Alias.CHALLENGER)
    return machine


@pytest.fixture(scope="module")
def state(machine: Machine) -> Path:
    """Where commands keep what they know."""
    return machine.state


@pytest.fixture(autouse=True)
def nothing_is_left(machine: Machine, tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever was refused, no process stays, and no ledger stays open."""
    write_spec(machine.folder)
    monkeypatch.chdir(machine.folder)
    monkeypatch.setenv("CI", "1")
    yield
    assert machine.processes() == []
    assert [delivery for delivery in machine.deliveries.deliveries(MODEL) if delivery.outcome is None] == []


def refused(finished: Said, code: int) -> str:
    """The one line of a command that was refused before it began."""
    assert (finished.code, finished.out, finished.err.count("\n")) == (code, "", 1), finished
    return finished.err.rstrip("\n")


def failed(machine: Machine, finished: Said, code: int) -> str:
    """The reason of a delivery that failed after its ledger was opened: in the ledger, and once on the screen."""
    assert finished.code == code, finished
    assert "Traceback" not in finished.err
    last = machine.deliveries.deliveries(MODEL)[0]
    assert last.outcome == "failed" and last.reason is not None
    assert len([line for line in finished.err.splitlines() if f": failed: {last.reason}" in line]) == 1, finished.err
    return last.reason


@pytest.mark.slow(reason="a process for each command")
def test_a_version_whose_stored_files_were_changed(machine: Machine, tidegate: Tidegate) -> None:
    export = write_export(machine, seed=2)
    registered = tidegate("model", "add", MODEL, str(export), "--alias", "challenger")
    assert registered.out.startswith("models:/tiny/3 (challenger): 6 files, 1 MB, digest "), registered
    stored = max((machine.state / "artifacts").rglob("model/config.json"), key=lambda path: path.stat().st_mtime)
    stored.write_text(stored.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 20000.0'))
    reason = failed(machine, tidegate("deliver"), 4)
    assert reason.startswith("models:/tiny/3: files differ from those registered: changed: config.json")


ON_GPUS = {"vllm": {"version": "0.32.0", "args": {"max-model-len": 512}}, "compile": {"mode": "none"}}


def test_a_gpu_that_this_machine_does_not_have(
    machine: Machine, tidegate: Tidegate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(machine.folder, engine={**ON_GPUS, "accelerator": "nvidia-h100-80gb"})
    monkeypatch.setenv("PATH", path_with_gpus(tmp_path, "NVIDIA L4"))
    expected = (
        "the engine is for 1 of nvidia-h100-80gb; this machine has NVIDIA L4 (nvidia-smi); "
        "deliver where the accelerator is, or set engine.accelerator to cpu"
    )
    for begun in ("deliver", "fleet up"):
        assert refused(tidegate(*begun.split()), 4) == f"tidegate: {expected}"
    shown = tidegate("plan")
    assert (shown.code, shown.out.count(f"`deliver` would not begin: {expected}")) == (4, 1), shown
