from __future__ import annotations

import json

import pytest

from engine_images.accelerators import Accelerator
from engine_images.choices import CompileMode
from engine_images.spec import EngineSettings
from tidegate.core.spec import SpecError, parse_spec


def parse(text: str) -> EngineSettings:
    return parse_spec(text, EngineSettings, file="engine.yaml")


def problem(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text)
    return str(caught.value)


def test_an_engine_needs_no_more_than_a_version_of_vllm() -> None:
    settings = parse("vllm: {version: 0.32.0}")
    assert settings.vllm.args == {}
    assert settings.accelerator is Accelerator.CPU
    assert settings.compile.mode is CompileMode.DEFAULT


def test_arguments_keep_the_type_that_the_file_gave_them() -> None:
    mapping = {"method": "ngram", "num_speculative_tokens": 3}
    wanted = {"max-model-len": 1024, "dtype": "float32", "enable-log-requests": True, "speculative-config": mapping}
    args = parse(json.dumps({"vllm": {"version": "0.32.0", "args": wanted}})).vllm.args
    assert args == wanted
    assert args["enable-log-requests"] is True


def test_a_refusal_names_the_line_and_the_argument_and_says_why() -> None:
    text = "vllm:\n  version: 0.32.0\n  args:\n    max-model-len: 1024\n    port: 80\n"
    assert problem(text) == (
        "engine.yaml:5: vllm.args.port: found 'port'; expected an argument of vLLM that tidegate does not set itself; "
        "this one follows from the address"
    )


GPU = "accelerator: nvidia-"


@pytest.mark.parametrize(
    ("args", "more", "told"),
    [
        ("{no-enforce-eager: true}", "", "rest of the spec"),
        ("{tensor-parallel-size: 0}", "", "vllm.args.tensor-parallel-size: found 0; expected at least 1"),
        ("{gpu-memory-utilization: 90}", "", "found 90; expected a share above 0 and at most 1"),
        (
            "{gpu-memory-utilization: 0.5, kv-cache-memory-bytes: 1G}",
            "",
            "found gpu-memory-utilization together with kv-cache-memory-bytes; expected one of the two",
        ),
        ("{}", GPU + "h1000", "h1000'; expected nvidia-h100-80gb (the nearest known name), or another of 'cpu', "),
        ("{dtype: bfloat16}", GPU + "t4", "found bfloat16 on nvidia-t4; expected float16 or float32"),
        ("{}", "compile: {mode: max}", "found 'max'; expected 'default', 'none' or 'max-autotune'"),
        (
            "{max-num-seqs: 8}",
            "compile: {warm: [1, 8, 32]}",
            "engine.yaml:2: compile.warm: found 32; expected at most max-num-seqs (8): no more are answered at once",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_does(args: str, more: str, told: str) -> None:
    assert told in problem(f"vllm: {{version: 0.32.0, args: {args}}}\n{more}")


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (
            "0.31.0",
            "found vLLM 0.31.0; expected 0.32.0, with which engines are built here; `engine.image` serves with any",
        ),
        ("0.32", "found 0.32"),
    ],
)
def test_a_version_is_the_one_that_engines_are_built_with(version: str, told: str) -> None:
    assert problem(f"vllm: {{version: {version}}}").startswith(f"engine.yaml:1: vllm.version: {told}")


@pytest.mark.parametrize("name", ["--max-model-len", "max_model_len", "Max-Len", "a b", ""])
def test_an_argument_is_written_as_on_the_command_line_without_dashes(name: str) -> None:
    assert "without the dashes in front: max-model-len" in problem(f"vllm: {{version: 0.32.0, args: {{'{name}': 1}}}}")


def test_every_wrong_argument_is_told_at_once_with_its_line() -> None:
    text = "vllm:\n  version: 0.32.0\n  args:\n    max-model-len: long\n    dtype: bfloat61\n    max-num-seqs: many\n"
    assert problem(text).splitlines() == [
        "engine.yaml:4: vllm.args.max-model-len: found 'long'; "
        "expected a whole number, one such as 8k (8000) or 8K (8192), or auto",
        "engine.yaml:5: vllm.args.dtype: found 'bfloat61'; "
        "expected one of auto, bfloat16, float, float16, float32, half",
        "engine.yaml:6: vllm.args.max-num-seqs: found 'many'; expected a whole number",
    ]


def test_the_parallel_sizes_must_take_all_accelerators_and_no_more() -> None:
    text = "vllm: {version: 0.32.0, args: {tensor-parallel-size: 4, pipeline-parallel-size: 2}}\n"
    assert problem(text + "accelerator: nvidia-l4\naccelerator_count: 4") == (
        "engine.yaml:3: accelerator_count: found 4 of nvidia-l4 for tensor 4 x pipeline 2; expected 8"
    )
    assert parse(text + "accelerator: nvidia-l4\naccelerator_count: 8").accelerator is Accelerator.L4


def test_sampling_defaults_keep_to_what_vllm_takes() -> None:
    assert parse("vllm: {version: 0.32.0}\nsampling: {temperature: 0.7, top_k: 20}").sampling.said == {
        "temperature": 0.7,
        "top_k": 20,
    }
    assert "sampling.temperature: found -1" in problem("vllm: {version: 0.32.0}\nsampling: {temperature: -1}")


@pytest.mark.parametrize("sizes", ["[]", "[8, 1]", "[1, 1]", "[0]"])
def test_batch_sizes_to_warm_are_written_once_and_in_order(sizes: str) -> None:
    assert "compile.warm" in problem(f"vllm: {{version: 0.32.0}}\ncompile: {{warm: {sizes}}}")


@pytest.mark.parametrize(
    ("said", "floor"),
    [("", None), ("accelerator: nvidia-l4", 0.95), ("accelerator: nvidia-l4\ncompile: {floor: 1.2}", 1.2)],
)
def test_on_a_gpu_a_compiled_engine_may_not_be_slower_by_much(said: str, floor: float | None) -> None:
    assert parse(f"vllm: {{version: 0.32.0}}\n{said}").floor == floor
