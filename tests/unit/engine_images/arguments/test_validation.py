"""Which arguments a spec may set."""

from __future__ import annotations

import re
from collections.abc import Callable

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from engine_images.arguments.pinned import Option, OptionKind, PinnedVllm, pinned_vllm
from engine_images.arguments.validation import (
    ALLOWED,
    RESERVED,
    arguments_schema,
    external_references,
    owner_of,
    wrong_arguments,
)
from engine_images.arguments.values import command_line
from engine_images.choices import EnginePlatform

VLLM = pinned_vllm("0.32.0") or pytest.fail("vLLM 0.32.0 is not described")
SCHEMA = jsonschema_rs.validator_for(arguments_schema(VLLM))


def expected(args: dict[str, JsonValue], vllm: PinnedVllm | None = VLLM) -> list[str]:
    return [wrong.expected for wrong in wrong_arguments(args, vllm)]


def test_every_reserved_argument_is_one_of_vllm() -> None:
    positional = {"model-tag"}
    assert {name for names in RESERVED.values() for name in names} - positional - VLLM.options.keys() == set()


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("max-modl-len", "an argument of vLLM 0.32.0: did you mean max-model-len?"),
        ("tensor-paralel-size", "an argument of vLLM 0.32.0: did you mean tensor-parallel-size?"),
        ("no-enable-prefix-caching", "enable-prefix-caching: false"),
        ("xyzzy", "an argument of vLLM 0.32.0"),
        ("compilation-config.mode", "a mapping: compilation-config: {mode: ...}"),
        ("log-config-file", "one that the next vLLM will know too"),
    ],
)
def test_a_name_that_vllm_does_not_take_is_told_with_what_it_takes(name: str, instead: str) -> None:
    assert expected({name: True}) == [instead]


@pytest.mark.parametrize(
    "loader", ["auto", "pt", "npcache", "tensorizer", "sharded_state", "bitsandbytes", True, ["safetensors"]]
)
@pytest.mark.parametrize("vllm", [VLLM, None])
def test_a_loader_that_may_unpickle_weights_is_refused(loader: JsonValue, vllm: PinnedVllm | None) -> None:
    assert expected({"load-format": loader}, vllm) == [
        "one of safetensors, runai_streamer, fastsafetensors: no pickle of a model version is read"
    ]


@pytest.mark.parametrize("loader", ["safetensors", "runai_streamer", "fastsafetensors"])
def test_a_loader_of_safetensors_is_the_specs_to_choose(loader: str) -> None:
    assert expected({"load-format": loader}) == []
    assert loader in arguments_schema(VLLM)["properties"]["load-format"]["enum"]


def test_an_abbreviation_that_vllm_would_complete_is_refused() -> None:
    # argparse takes `--por` for `--port`, which is reserved.
    assert expected({"por": 1}) != []


def test_of_an_unknown_vllm_only_the_names_are_judged() -> None:
    assert expected({"whatever": 1, "port": 1}, None) == [
        "an argument of vLLM that tidegate does not set itself; this one follows from the address"
    ]


@pytest.mark.parametrize("name", ["port", "max-modl-len"])
def test_an_editor_marks_a_name_that_the_plan_refuses(name: str) -> None:
    assert expected({name: 80}) != []
    assert not SCHEMA.is_valid({name: 80})


WORDS = ("auto", "8k", "8K", "1.5m", "1.5K", "float32", "text", "fp8", "7", "-1", "--port", "")
NUMBERS = (0, 1, 8, 16, 17, 1024, -1, 0.5, 1.5)
NESTED = ({"method": "ngram"}, {"the_method": "ngram"}, [1, 2], ["a"], [{"name": "a", "path": "b"}])
PLAIN = st.one_of(st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS))
MAPPINGS = st.dictionaries(st.sampled_from(["method", "mode", "model", "backend", "nothing"]), PLAIN, max_size=2)
VALUES = st.one_of(PLAIN, MAPPINGS, st.lists(st.one_of(PLAIN, MAPPINGS), max_size=2))
FREE = sorted(name for name, option in VLLM.options.items() if owner_of(name) is None and not option.deprecated)


@pytest.mark.parametrize("value", [True, False, *WORDS, *NUMBERS, *NESTED])
def test_an_editor_and_the_plan_agree_on_every_option(value: JsonValue) -> None:
    assert [name for name in FREE if SCHEMA.is_valid({name: value}) != (expected({name: value}) == [])] == []


@given(VALUES)
def test_an_editor_and_the_plan_agree_whatever_stands_there(value: JsonValue) -> None:
    assert [name for name in FREE if SCHEMA.is_valid({name: value}) != (expected({name: value}) == [])] == []


def test_options_that_are_repeated_are_repeated() -> None:
    assert command_line({"middleware": ["a.b", "c.d"]}, VLLM) == ("--middleware=a.b", "--middleware=c.d")


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"middleware": "evil.Backdoor"}, [("middleware", "evil.Backdoor")]),
        ({"middleware": ["a.B", "c.D"]}, [("middleware", "a.B"), ("middleware", "c.D")]),
        ({"worker-cls": []}, [("worker-cls", "[]")]),
        ({"lora-modules": [{"name": "x", "path": "/x"}]}, [("lora-modules", "x"), ("lora-modules", "/x")]),
        (
            {"speculative-config": {"model": "acme/draft", "num_speculative_tokens": 2}},
            [("speculative-config.model", "acme/draft")],
        ),
        ({"speculative-config": {"method": "custom_class"}}, [("speculative-config.method", "custom_class")]),
        ({"speculative-config": "{}"}, [("speculative-config", "{}")]),
        (
            {"kv-transfer-config": {"kv-connector-module-path": "evil", "kv_connector_extra_config": {"a": [1, True]}}},
            [
                ("kv-transfer-config.kv-connector-module-path", "evil"),
                ("kv-transfer-config.kv_connector_extra_config", "1"),
                ("kv-transfer-config.kv_connector_extra_config", "true"),
            ],
        ),
        ({"compilation-config": {"backend": "evil.backend"}}, [("compilation-config.backend", "evil.backend")]),
        ({"enable-log-outputs": False}, [("enable-log-outputs", "false")]),
        ({"distributed-executor-backend": "evil.Executor"}, [("distributed-executor-backend", "evil.Executor")]),
        ({"max-model-len": {"a": 1}}, [("max-model-len.a", "1")]),
    ],
)
def test_what_a_spec_may_not_set_by_itself_is_told_with_each_value(
    args: dict[str, object], found: list[tuple[str, str]]
) -> None:
    assert list(external_references(args)) == found  # type: ignore[arg-type]  # as a spec has them


@pytest.mark.parametrize(
    "args",
    [
        {"max-model-len": 4096, "enable-prefix-caching": False, "distributed-executor-backend": "mp"},
        {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2}},
        {"compilation-config": {"backend": "inductor", "mode": 3}},
    ],
)
def test_what_is_harmless_is_free(args: dict[str, object]) -> None:
    assert list(external_references(args)) == []  # type: ignore[arg-type]  # as a spec has them


@pytest.mark.parametrize(
    "name",
    [
        *("spec-method", "spec-model", "tool-server", "master-addr", "data-parallel-address", "worker-cls"),
        *("mm-encoder-fp8-scale-save-path", "scheduler-cls", "hf-overrides", "additional-config", "ssl-keyfile"),
    ],
)
@pytest.mark.parametrize("write", [str, lambda name: name[:-1], lambda name: name.replace("-", "_"), "no-{}".format])
def test_no_other_way_to_write_an_argument_gets_around_the_list(name: str, write: Callable[[str], str]) -> None:
    # Also of a vLLM that is not described here: there argparse completes names and takes underscores for dashes.
    assert list(external_references({write(name): "ngram"})) == [(write(name), "ngram")]


NUMBERS_AND_FLAGS = {OptionKind.FLAG, OptionKind.INTEGER, OptionKind.COUNT, OptionKind.LENGTH, OptionKind.NUMBER}
LOOKED_UP = {
    *("quantization", "optimization-level", "attention-backend", "tool-call-parser", "reasoning-parser"),
    "load-format",
}
"""Texts that vLLM looks up among its own names; `test_installed_vllm.py` asks it. The last is tidegate's own choice."""
NAMED_AFTER_PLACES = re.compile(
    r"(^|-)(path|file|dir|url|uri|uds|endpoints?|addr(ess)?|host|port|ip|cls|class|plugin|command|module|middleware)($|-)"
)


@pytest.mark.parametrize("platform", [EnginePlatform.CPU, EnginePlatform.CUDA])
def test_nothing_that_takes_a_path_an_address_a_module_or_a_command_is_allowed(platform: EnginePlatform) -> None:
    vllm = pinned_vllm("0.32.0", platform) or pytest.fail("vLLM 0.32.0 is not described")
    allowed = {name for name, option in vllm.options.items() if name in ALLOWED and not _harmless(name, option)}
    assert allowed == set()
    assert {name for name in vllm.options if name in ALLOWED and NAMED_AFTER_PLACES.search(name)} == set()
    assert {re.split(r"[.:]", entry)[0] for entry in ALLOWED} <= vllm.options.keys(), "names that argparse completes"
    assert {entry for entry in ALLOWED if owner_of(entry)} == set()


def _harmless(name: str, option: Option) -> bool:
    return option.kind in NUMBERS_AND_FLAGS or name in LOOKED_UP or bool(option.choices)


def test_keys_of_mappings_that_are_allowed_are_ones_that_vllm_knows() -> None:
    keys = [entry.partition(":")[0].split(".") for entry in ALLOWED if "." in entry.partition(":")[0]]
    odd = [(name, key) for name, key in keys if VLLM.options[name].fields and key not in VLLM.options[name].fields]
    assert odd == []
    assert {name for name, _ in keys} & ALLOWED == set(), "a mapping is allowed by its keys, and never as a whole"
