from __future__ import annotations

from pathlib import Path

import pytest

from engine_images.accelerators import DEVICES, MEBIBYTE, Accelerator, unseen
from engine_images.adapters.gpus import require_accelerator
from engine_images.errors import EnvironmentMissing

PAGE = Path(__file__).parents[3] / "docs/reference/engine-checks.md"


def test_the_page_lists_them_with_the_same_numbers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, device in DEVICES.items():
        memory = "the machine" if device.memory_bytes is None else f"{device.memory_bytes // MEBIBYTE:,} MiB"
        precision = f"{'yes' if device.bfloat16 else 'no'} | {'yes' if device.fp8 else 'no'}"
        assert f"| `{name}` | {memory} | {precision} | {device.source} |" in page


H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("accelerator", "count", "seen", "problem"),
    [
        (Accelerator.CPU, 1, [], None),
        (Accelerator.H100, 2, [H100, H100], None),
        (Accelerator.H100, 2, [H100], "the engine is for 2 of nvidia-h100-80gb; this machine has 1 of them"),
        (Accelerator.H100, 1, [], "the engine is for 1 of nvidia-h100-80gb; this machine has no GPU"),
        (Accelerator.L4, 1, ["NVIDIA L40S"], "the engine is for 1 of nvidia-l4; this machine has NVIDIA L40S"),
    ],
)
def test_a_machine_without_the_accelerator_is_told(
    accelerator: Accelerator, count: int, seen: list[str], problem: str | None
) -> None:
    assert unseen(accelerator, count, seen) == problem


def driver(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's tool as a program, first on PATH: there is no driver here."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_nothing_is_built_for_a_gpu_that_the_driver_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, "nvidia-smi", f'[ "$1" = --query-gpu=name ] && echo "{H100}"', monkeypatch)
    require_accelerator(Accelerator.H100, 1)
    with pytest.raises(EnvironmentMissing, match=r"2 of nvidia-h100-80gb; this machine has 1 of them \(nvidia-smi\)"):
        require_accelerator(Accelerator.H100, 2)
    with pytest.raises(EnvironmentMissing, match="build where the accelerator is"):
        require_accelerator(Accelerator.H200, 1)


def test_a_driver_that_fails_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver(tmp_path, "nvidia-smi", "exit 9", monkeypatch)
    with pytest.raises(EnvironmentMissing, match="this machine has no GPU"):
        require_accelerator(Accelerator.L4, 1)
