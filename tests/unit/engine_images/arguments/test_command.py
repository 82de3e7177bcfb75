"""Command lines that people write for vLLM, read back as a spec's arguments."""

from __future__ import annotations

import shlex

import pytest

from engine_images.arguments.command import VllmCommand, read_vllm_command
from engine_images.arguments.values import command_line

IMAGE = "vllm/vllm-openai:v0.32.0"


def read(*words: str, image: str = IMAGE, args: tuple[str, ...] = ()) -> VllmCommand:
    return read_vllm_command(words, args, image=image)


@pytest.mark.parametrize(
    "words",
    [
        "vllm serve acme/support",
        "/usr/local/bin/vllm serve acme/support",
        "vllm serve --model acme/support",
        "vllm serve --disable-log-requests acme/support",
        "python3 -m vllm.entrypoints.openai.api_server --model acme/support",
        "python -u -m vllm.entrypoints.openai.api_server --model=acme/support",
    ],
)
def test_every_way_to_start_the_server(words: str) -> None:
    found = read(*shlex.split(words), "--dtype", "bfloat16")
    assert (found.recognized, found.model, dict(found.args)) == (True, "acme/support", {"dtype": "bfloat16"})


@pytest.mark.parametrize(
    "script",
    [
        "vllm serve acme/support --dtype bfloat16",
        "exec vllm serve acme/support \\\n  --dtype bfloat16",
        "set -e; pip list && vllm serve acme/support --dtype bfloat16",
        "export A=b\nulimit -n 65535\nexec vllm serve acme/support --dtype bfloat16 2>&1 | tee /tmp/log",
        "HF_HOME=/tmp vllm serve 'acme/support' --dtype \"bfloat16\"",
    ],
)
def test_a_shell_around_it(script: str) -> None:
    found = read("/bin/bash", "-c", script)
    assert (found.model, dict(found.args)["dtype"]) == ("acme/support", "bfloat16")


def test_a_script_that_does_not_end_its_quote_is_not_taken_for_a_server() -> None:
    assert not read("sh", "-c", "echo 'vllm serve acme/support").recognized


def test_an_images_own_entrypoint() -> None:
    assert read(args=("--model", "acme/support")).model == "acme/support"
    assert not read(image="lmsysorg/sglang:latest", args=("--model-path", "acme/support")).recognized
    assert not read("/start.sh", args=("--model", "acme/support")).recognized


def test_values_have_the_types_that_a_spec_takes() -> None:
    found = read(
        *shlex.split(
            "vllm serve m --max_model_len 8k -tp 4 --gpu-memory-utilization 0.9 --enable-prefix-caching "
            "--no-enable-chunked-prefill --max-num-seqs=256 --tool-call-parser hermes --enable-auto-tool-choice"
        ),
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3}',
    )
    assert dict(found.args) == {
        "max-model-len": "8k",
        "tensor-parallel-size": 4,
        "gpu-memory-utilization": 0.9,
        "enable-prefix-caching": True,
        "enable-chunked-prefill": False,
        "max-num-seqs": 256,
        "tool-call-parser": "hermes",
        "enable-auto-tool-choice": True,
        "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
    }
    assert found.left == ()


def test_what_is_written_is_read_back() -> None:
    inner = {"cudagraph_capture_sizes": [1]}
    args = {"max-model-len": 8192, "enable-prefix-caching": False, "dtype": "float16", "compilation-config": inner}
    assert dict(read("vllm", "serve", "m", *command_line(args)).args) == args


def test_names_have_a_place_of_their_own() -> None:
    found = read(*shlex.split("vllm serve /models/7 --served-model-name support other --revision v3 --port 9000"))
    assert (found.model, found.served_name, found.revision) == ("/models/7", "support", "v3")
    assert (dict(found.args), found.left) == ({}, ())


@pytest.mark.parametrize(
    ("words", "name", "why"),
    [
        ("--api-key sk-hidden", "api-key", "watched and stopped"),
        ("--hf-token hf-hidden", "hf-token", "no secrets"),
        ("--chat-template /etc/hidden.jinja", "chat-template", "registered model version"),
        ("--quantization $HIDDEN", "quantization", "a variable's"),
        ("--max-model-len $(HIDDEN)", "max-model-len", "a variable's"),
        ("""--hf-overrides '{"api_key": "hidden"}'""", "hf-overrides", "a secret"),
        ("--tool-parser-plugin /hidden.py", "tool-parser-plugin", "trust.yaml"),
        ("--made-up hidden", "made-up", "trust.yaml"),
        ("--dtype hidden", "dtype", "auto"),
        ("--enable-auto-tool-choice", "enable-auto-tool-choice", "tool-call-parser"),
    ],
)
def test_what_a_spec_does_not_take_is_named_without_its_value(words: str, name: str, why: str) -> None:
    found = read(*shlex.split(f"vllm serve m {words}"))
    (left,) = found.left
    assert (left.name, dict(found.args)) == (name, {})
    assert why in left.why
    assert "hidden" not in str(found).lower()


def test_a_value_is_what_vllm_gets_back() -> None:
    found = read(*shlex.split("vllm serve m --tool-call-parser 007 --max-num-seqs 8 --enable-chunked-prefill=False"))
    assert dict(found.args) == {"tool-call-parser": "007", "max-num-seqs": 8, "enable-chunked-prefill": False}
