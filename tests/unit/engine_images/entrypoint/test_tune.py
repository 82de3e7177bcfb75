"""The environment that vLLM starts in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine_images.entrypoint.prepare import child_environment, usable_cores


def environment(inherited: dict[str, str], manifest: dict[str, str], **options: Any) -> dict[str, str]:
    places = {"cache": Path("/run/cache"), "packages": Path("/engine/entrypoint")}
    return child_environment(inherited, manifest, **{"threads": None, **places, **options})


def test_the_operator_counts_more_than_the_manifest_and_the_place_more_than_both() -> None:
    made = environment({"VLLM_X": "operator", "VLLM_CACHE_ROOT": "/a"}, {"VLLM_X": "manifest", "VLLM_Y": "manifest"})
    assert (made["VLLM_X"], made["VLLM_Y"], made["VLLM_CACHE_ROOT"]) == ("operator", "manifest", "/run/cache")


def test_the_gate_can_be_imported_and_the_models_folder_cannot() -> None:
    made = environment({"PYTHONPATH": "/more"}, {})
    assert made["PYTHONPATH"] == "/engine/entrypoint:/more"
    assert made["PYTHONSAFEPATH"] == "1"


def test_threads_and_waiting_are_tuned_unless_the_operator_says_otherwise() -> None:
    made = environment({}, {"OMP_NUM_THREADS": "64"}, threads=4)
    assert (made["OMP_NUM_THREADS"], made["OMP_WAIT_POLICY"]) == ("4", "passive")
    assert environment({"OMP_WAIT_POLICY": "active"}, {})["OMP_WAIT_POLICY"] == "active"


@pytest.mark.parametrize(("quota", "cores"), [("100000 100000", 1), ("50000 100000", 1)])
def test_a_container_computes_with_the_cores_it_may_use(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_cores(tmp_path / "cpu.max") == cores
    assert usable_cores(tmp_path / "nothing") >= 1


def test_what_compilers_make_for_a_gpu_is_kept_with_the_compile_cache() -> None:
    made = environment({"CUDA_CACHE_PATH": "/operator"}, {}, on_cpu=False)
    assert made["TRITON_CACHE_DIR"] == "/run/cache/triton"
    assert made["FLASHINFER_WORKSPACE_BASE"] == "/run/cache/flashinfer"
    assert made["CUDA_CACHE_PATH"] == "/operator"
    assert "TRITON_CACHE_DIR" not in environment({}, {})
