"""Which differences between two machines count, and how they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_images.entrypoint.compile_key import (
    changes_what_is_compiled,
    differences,
    machine_factors,
    neutral_variables,
    options,
)
from engine_images.entrypoint.prepare import without


def test_each_difference_has_a_name_and_both_values() -> None:
    built = {"torch": "2.13.0+cpu", "cpu": "x86_64 avx512f", "python": "3.11.7"}
    here = {"torch": "2.13.0+cpu", "cpu": "x86_64 avx2", "env:VLLM_PLUGINS": "a"}
    assert differences(built, here) == [
        "cpu: built with x86_64 avx512f, here x86_64 avx2",
        "env:VLLM_PLUGINS: built with nothing, here a",
        "python: built with 3.11.7, here nothing",
    ]


def test_arguments_are_the_same_however_they_are_written() -> None:
    written = ["serve", "--max-model-len", "1024", "--enforce-eager", "--lora-modules", "a=b", "c=d", "--seed=-1"]
    assert options(written) == {
        "": "serve",
        "--max-model-len": "1024",
        "--enforce-eager": "",
        "--lora-modules": "a=b c=d",
        "--seed": "-1",
    }
    assert options(["--seed=1", "--seed", "2"]) == {"--seed": "2"}


@pytest.mark.parametrize("given", [["--port", "1", "--x"], ["--port=1", "--x"], ["--x", "--port", "1"]])
def test_ours_replace_the_manifests(given: list[str]) -> None:
    assert list(without({"--port"}, given)) == ["--x"]


@pytest.mark.parametrize(
    ("variable", "counts"),
    [
        ("VLLM_PLUGINS", True),
        ("VLLM_CACHE_ROOT", False),
        ("CXX", True),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", True),
        ("TORCHINDUCTOR_CACHE_DIR", False),
        ("HOME", False),
    ],
)
def test_only_what_changes_the_compiled_model_is_in_the_key(variable: str, counts: bool) -> None:
    assert changes_what_is_compiled(variable, neutral_variables()) is counts


def test_a_gpus_name_and_driver_are_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\ncase $1 in *=name) echo "NVIDIA L4"; echo "NVIDIA L4";; *) echo 580.95.05;; esac\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = machine_factors({}, on_cpu=False)
    assert (found["gpu"], found["driver"]) == ("NVIDIA L4", "580.95.05")
    assert found["cuda"] == "nothing", "this Python has no torch"
    assert "cpu" not in found
    assert differences(found, {**found, "driver": "590.1"}) == ["driver: built with 580.95.05, here 590.1"]
