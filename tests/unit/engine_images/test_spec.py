from __future__ import annotations

import pytest

from engine_images.spec import RESERVED, Accelerator, CompileMode, EngineSettings
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
    args = parse(
        "vllm: {version: 0.32.0, args: {max-model-len: 1024, dtype: float32, enable-log-requests: true}}"
    ).vllm.args
    assert args == {"max-model-len": 1024, "dtype": "float32", "enable-log-requests": True}
    assert args["enable-log-requests"] is True


@pytest.mark.parametrize("argument", [argument for arguments in RESERVED.values() for argument in arguments])
def test_an_argument_that_follows_from_something_else_is_refused(argument: str) -> None:
    assert "that tidegate does not set itself" in problem(f"vllm: {{version: 0.32.0, args: {{{argument}: 1}}}}")


def test_the_negation_of_such_an_argument_is_refused_too() -> None:
    assert "rest of the spec" in problem("vllm: {version: 0.32.0, args: {no-enforce-eager: true}}")


def test_a_refusal_names_the_line_and_the_argument_and_says_why() -> None:
    text = "vllm:\n  version: 0.32.0\n  args:\n    max-model-len: 1024\n    port: 80\n"
    assert problem(text) == (
        "engine.yaml:5: vllm.args.port: found 'port'; expected an argument of vLLM that tidegate does not set itself; "
        "this one follows from the address"
    )


@pytest.mark.parametrize("name", ["--max-model-len", "max_model_len", "Max-Len", "a b", ""])
def test_an_argument_is_written_as_on_the_command_line_without_dashes(name: str) -> None:
    assert "without the dashes in front: max-model-len" in problem(f"vllm: {{version: 0.32.0, args: {{'{name}': 1}}}}")


@pytest.mark.parametrize("value", ["[1, 2]", "{a: 1}", "null", "2026-01-01"])
def test_an_argument_has_one_plain_value(value: str) -> None:
    assert "expected text, a number, true or false" in problem(f"vllm: {{version: 0.32.0, args: {{seed: {value}}}}}")


def test_an_unknown_accelerator_is_refused_with_the_known_ones() -> None:
    assert problem("vllm: {version: 0.32.0}\naccelerator: nvidia-h100") == (
        "engine.yaml:2: accelerator: found 'nvidia-h100'; expected 'cpu'"
    )


def test_an_unknown_way_to_compile_is_refused_with_the_known_ones() -> None:
    assert "expected 'default' or 'none'" in problem("vllm: {version: 0.32.0}\ncompile: {mode: max}")


def test_a_version_that_yaml_reads_as_a_number_is_refused() -> None:
    assert "vllm.version: found 0.32" in problem("vllm: {version: 0.32}")
