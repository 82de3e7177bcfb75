"""Every obstacle in one line, told from descriptions of files; no file is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.engines.models import LLAMA_8B, LLAMA_70B, tensors_of
from hypothesis import given
from hypothesis import strategies as st

from engine_images.accelerators import GIBIBYTE, Accelerator
from engine_images.arguments.values import ArgumentValue
from engine_images.checks.files import VersionFiles
from engine_images.checks.servable import problems_of
from engine_images.spec import EngineSettings, VllmSpec

KEYS = {*LLAMA_8B, "text_config", "quantization_config", "rope_parameters", "factor", "sliding_window", "layer_types"}

WHOLE = {
    "config.json": 700,
    "generation_config.json": 100,
    "tokenizer.json": 1000,
    "tokenizer_config.json": 300,
    "chat_template.jinja": 200,
    "model.safetensors": 16_000_000_000,
}


def version(config: dict[str, Any] = LLAMA_8B, **changes: Any) -> VersionFiles:
    whole = VersionFiles(
        sizes=WHOLE,
        documents={"config.json": config, "tokenizer_config.json": {}},
        tensors={"model.safetensors": tuple(tensors_of(config))},
        largest_token=config["vocab_size"] - 1,
    )
    return replace(whole, **changes)


def found(files: VersionFiles, *, on: Accelerator = Accelerator.H100, **args: ArgumentValue) -> list[str]:
    named = {"max-model-len": 8192} | {name.replace("_", "-"): value for name, value in args.items()}
    settings = EngineSettings(vllm=VllmSpec(version="0.32.0", args=named), accelerator=on)
    return [str(obstacle) for obstacle in problems_of(files, settings, machine_bytes=64 * GIBIBYTE)]


def without(*names: str, **more: int) -> dict[str, int]:
    return {name: size for name, size in WHOLE.items() if name not in names} | more


def test_a_whole_version_has_no_obstacles() -> None:
    assert found(version()) == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_missing_file_is_named(name: str) -> None:
    assert found(version(sizes=without(name))) == [f"{name}: found nothing; expected the whole Hugging Face directory"]


def test_pickled_files_are_named() -> None:
    assert found(version(pickles=("optimizer.pt", "training_args.bin"))) == [
        f"{name}: found a file of pickled objects, which runs code when it is read; "
        "expected safetensors only; register the version without it"
        for name in ("optimizer.pt", "training_args.bin")
    ]


def test_code_of_a_model_version_is_refused_as_where_it_is_registered() -> None:
    asking = {"tokenizer_config.json": {"chat_template": "x", "auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}}
    named = found(version(sizes=WHOLE | {"modeling_evil.py": 9}, documents=asking))
    assert "modeling_evil.py: found code; expected none: a model version's own code is never run" in named
    assert any(line.startswith("tokenizer_config.json: found auto_map, which asks for") for line in named)


def test_a_missing_part_of_the_weights_is_named() -> None:
    parts = {"model-00001-of-00003.safetensors": 5, "model-00003-of-00003.safetensors": 5}
    assert found(version(sizes=without("model.safetensors") | parts)) == [
        "model-00002-of-00003.safetensors: found nothing; expected all 3 parts of the weights"
    ]


def test_an_answer_longer_than_the_positions_is_refused() -> None:
    assert found(version(LLAMA_8B | {"max_position_embeddings": 4096, "rope_scaling": None})) == [
        "engine.vllm.args.max-model-len: found 8192; "
        "expected at most 4096, the positions that the model knows (max_position_embeddings)"
    ]


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 4.0}])
def test_positions_that_are_stretched_count_stretched(rope: dict[str, object]) -> None:
    assert found(version(LLAMA_8B | {"max_position_embeddings": 4096, "rope_scaling": rope})) == []


def test_a_tokenizer_of_another_model_is_refused() -> None:
    assert found(version(largest_token=200_000)) == [
        "tokenizer.json: found a token with the number 200000, but the model knows 128256 tokens; "
        "expected the tokenizer that the model was trained with"
    ]


def test_a_model_that_is_too_large_is_told_by_how_much_and_what_would_help() -> None:
    assert found(version(LLAMA_70B)) == [
        "engine.accelerator: found 138.9 GiB for each nvidia-h100-80gb (weights 131.4 GiB, KV cache of one answer of "
        "8192 tokens 2.5 GiB, reserve 5.0 GiB), 65.6 GiB more than the 73.3 GiB that an engine may take; "
        "expected tensor-parallel-size: 2 and accelerator_count: 2"
    ]


def test_a_shorter_answer_is_proposed_when_that_is_enough() -> None:
    told = found(version(), on=Accelerator.L4, max_model_len=65536)
    assert len(told) == 1
    assert "max-model-len: " in told[0]
    fits = int(told[0].rsplit("max-model-len: ", 1)[1])
    assert found(version(), on=Accelerator.L4, max_model_len=fits) == []
    assert found(version(), on=Accelerator.L4, max_model_len=fits + 256) != []


def test_a_kv_cache_too_small_for_one_answer_is_refused() -> None:
    assert found(version(), on=Accelerator.CPU) == [
        "engine.vllm.args.kv-cache-memory-bytes: found 128 MiB, but one answer of 8192 tokens takes 1.0 GiB; "
        "expected 1073741824 or more, or max-model-len: 1024"
    ]


def test_adapters_and_drafts_come_with_the_version() -> None:
    adapter = {"enable_lora": True, "lora_modules": [{"name": "sql", "path": "model/adapters/sql"}]}
    absent = found(version(), **adapter)
    assert absent == [
        "engine.vllm.args.lora-modules sql: found nothing whole at model/adapters/sql; "
        "expected adapter_config.json and safetensors there"
    ]
    assert found(version(), enable_lora=True, lora_modules=["sql=/tmp/sql"]) == [
        "engine.vllm.args.lora-modules sql: found /tmp/sql; expected a folder of the model version, such as "
        "model/adapters/mine: only what it holds was gated"
    ]
    assert found(version(), speculative_config={"method": "eagle", "model": "org/draft"}) == [
        "engine.vllm.args.speculative-config: found org/draft; expected a folder of the model version, such as "
        "model/adapters/mine: only what it holds was gated"
    ]
    assert found(version(), speculative_config={"method": "ngram", "num_speculative_tokens": 3}) == []


def test_all_obstacles_are_told_at_once() -> None:
    broken = version(LLAMA_70B, sizes=without("tokenizer.json"), pickles=("training_args.bin",))
    assert [line.split(":")[0] for line in found(broken)] == [
        "training_args.bin",
        "tokenizer.json",
        "engine.accelerator",
    ]


def test_a_length_that_vllm_fits_to_the_memory_always_fits() -> None:
    assert found(version(), on=Accelerator.L4, max_model_len="auto") == []


ODDITIES: list[Any] = [
    *(None, True, -1, 0, 7, 1.5, 1e300, "", "x", [], {}, ["a", 1, None], [["sliding_attention"]]),
    *({"factor": None}, {"factor": float("inf"), "rope_type": []}, {"quant_method": None}, {"num_hidden_layers": "x"}),
]
TINY = version(LLAMA_8B | {"num_hidden_layers": 1})


@given(st.dictionaries(st.sampled_from(sorted(KEYS)), st.sampled_from(ODDITIES), max_size=4))
def test_no_configuration_however_odd_is_met_with_a_traceback(changes: dict[str, Any]) -> None:
    files = replace(TINY, documents={"config.json": LLAMA_8B | changes, "tokenizer_config.json": changes})
    assert all(line.count("; expected ") == 1 for line in found(files))
