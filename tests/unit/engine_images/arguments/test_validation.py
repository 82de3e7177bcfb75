"""Which arguments a spec may set."""

from __future__ import annotations

import re
from collections.abc import Callable

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from engine_images.arguments.validation import (
    ALLOWED,
    RESERVED,
    arguments_schema,
    external_references,
    owner_of,
    wrong_arguments,
)
from engine_images.arguments.values import KIND_OF, SEVERAL, command_line

SCHEMA = jsonschema_rs.validator_for(arguments_schema())


def expected(args: dict[str, JsonValue]) -> list[str]:
    return [wrong.expected for wrong in wrong_arguments(args)]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("no-enable-prefix-caching", "enable-prefix-caching: false"),
        ("compilation-config.mode", "a mapping: compilation-config: {mode: ...}"),
        ("device-memory-utilization", "gpu-memory-utilization"),
        ("tensor-parallel", "tensor-parallel-size"),
    ],
)
def test_another_way_to_name_what_tidegate_reasons_about_is_told_with_the_name(name: str, instead: str) -> None:
    assert expected({name: True}) == [instead]


@pytest.mark.parametrize(
    "loader", ["auto", "pt", "npcache", "tensorizer", "sharded_state", "bitsandbytes", True, ["safetensors"]]
)
@pytest.mark.parametrize("name", ["load-format", "load-form"])
def test_a_loader_that_may_unpickle_weights_is_refused(name: str, loader: JsonValue) -> None:
    assert expected({name: loader}) == [
        "one of safetensors, runai_streamer, fastsafetensors: no pickle of a model version is read"
    ]


@pytest.mark.parametrize("loader", ["safetensors", "runai_streamer", "fastsafetensors"])
def test_a_loader_of_safetensors_is_the_specs_to_choose(loader: str) -> None:
    assert expected({"load-format": loader}) == []
    assert loader in arguments_schema()["properties"]["load-format"]["enum"]


@given(st.data())
def test_an_abbreviation_that_vllm_would_complete_is_refused(data: st.DataObject) -> None:
    # argparse takes `--por` for `--port`, which is reserved.
    name = data.draw(st.sampled_from(sorted(name for names in RESERVED.values() for name in names)))
    written = name[: data.draw(st.integers(min_value=1, max_value=len(name)))].rstrip("-")
    assert expected({written: 1}) != []
    assert expected({f"no-{written}": True}) != []


@given(st.text(max_size=12))
def test_what_vllm_does_not_know_is_passed_as_one_word(text: str) -> None:
    assert expected({"max-modl-len": text}) == []
    assert command_line({"max-modl-len": text}) == (f"--max-modl-len={text}",)


def test_a_list_never_becomes_a_word_of_its_own_where_vllm_takes_one_value() -> None:
    # Behind a flag, a word of its own would be the model that is served.
    assert command_line({"enable-prefix-caching": ["acme/evil"]}) == ('--enable-prefix-caching=["acme/evil"]',)
    assert command_line({"allowed-origins": ["*"]}) == ('--allowed-origins=["*"]',)
    assert command_line({"cudagraph-capture-sizes": [1, 2]}) == ("--cudagraph-capture-sizes", "1", "2")


@pytest.mark.parametrize("name", sorted(SEVERAL))
def test_no_value_of_several_is_taken_for_an_option(name: str) -> None:
    assert expected({name: ["a", "--port=1"]}) == ["a list without text that begins with a dash"]


@pytest.mark.parametrize(
    "args", [{"port": 80}, {"dtype": "bfloat61"}, {"max_model_len": 1}, {"max-num-seqs": "8"}, {"load-format": "pt"}]
)
def test_an_editor_marks_what_the_plan_refuses(args: dict[str, JsonValue]) -> None:
    assert expected(args) != []
    assert not SCHEMA.is_valid(args)


WORDS = ("auto", "8k", "float32", "text", "7", "--port", "")
VALUES = st.one_of(st.booleans(), st.sampled_from((0, 1, 1024, 0.5, *WORDS)), st.just({"method": "ngram"}))


@given(st.sampled_from(sorted(KIND_OF)), VALUES)
def test_an_editor_marks_nothing_that_the_plan_takes(name: str, value: JsonValue) -> None:
    assert SCHEMA.is_valid({name: value}) or expected({name: value}) != []


def test_options_that_are_repeated_are_repeated() -> None:
    assert command_line({"middleware": ["a.b", "c.d"]}) == ("--middleware=a.b", "--middleware=c.d")


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


NAMED_AFTER_PLACES = re.compile(
    r"(^|-)(path|file|dir|url|uri|uds|endpoints?|addr(ess)?|host|port|ip|cls|class|plugin|command|module|middleware)($|-)"
)


def test_nothing_that_is_named_after_a_path_an_address_a_module_or_a_command_is_allowed() -> None:
    assert {name for name in ALLOWED if NAMED_AFTER_PLACES.search(re.split(r"[.:]", name)[0])} == set()
    assert {entry for entry in ALLOWED if owner_of(entry)} == set()
    keys = {entry.partition(":")[0].split(".")[0] for entry in ALLOWED if "." in entry.partition(":")[0]}
    assert keys & ALLOWED == set(), "a mapping is allowed by its keys, and never as a whole"
