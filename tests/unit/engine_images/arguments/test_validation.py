"""Which arguments a spec may set."""

from __future__ import annotations

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from engine_images.arguments.pinned import PinnedVllm, known_versions, pinned_vllm
from engine_images.arguments.validation import (
    RESERVED,
    REVEALS,
    RUNS_CODE,
    UNPROVEN,
    WITHIN,
    arguments_schema,
    external_references,
    owner_of,
    wrong_arguments,
)
from engine_images.arguments.values import command_line

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


AGREE: list[dict[str, JsonValue]] = [
    {"max-model-len": 1024},
    {"max-model-len": "8K"},
    {"max-model-len": "auto"},
    {"max-model-len": "long"},
    {"max-model-len": True},
    {"dtype": "float32"},
    {"dtype": "float23"},
    {"enable-prefix-caching": False},
    {"disable-log-stats": False},
    {"disable-log-stats": True},
    {"lora-modules": [{"name": "a", "path": "b"}]},
    {"speculative-config": {"method": "ngram"}},
    {"speculative-config": {"the_method": "ngram"}},
    {"speculative-config": "ngram"},
    {"cudagraph-capture-sizes": [1, 2]},
    {"cudagraph-capture-sizes": ["a"]},
    {"port": 80},
    {"max-modl-len": 5},
    {"max-lora-rank": 16},
    {"max-lora-rank": 17},
]


@pytest.mark.parametrize("args", AGREE)
def test_an_editor_marks_what_the_plan_refuses(args: dict[str, JsonValue]) -> None:
    assert SCHEMA.is_valid(args) == (expected(args) == [])


WORDS = st.sampled_from(["auto", "8k", "8K", "1.5m", "1.5K", "float32", "text", "fp8", "7", "-1", "--port", ""])
NUMBERS = st.sampled_from([0, 1, 8, 16, 1024, -1, 0.5, 1.5])
PLAIN = st.one_of(st.booleans(), NUMBERS, WORDS)
MAPPINGS = st.dictionaries(st.sampled_from(["method", "mode", "model", "backend", "nothing"]), PLAIN, max_size=2)
VALUES = st.one_of(PLAIN, MAPPINGS, st.lists(st.one_of(PLAIN, MAPPINGS), max_size=2))
FREE = sorted(name for name, option in VLLM.options.items() if owner_of(name) is None and not option.deprecated)


@given(st.sampled_from(FREE), VALUES)
def test_an_editor_and_the_plan_agree_on_every_option(name: str, value: JsonValue) -> None:
    assert SCHEMA.is_valid({name: value}) == (expected({name: value}) == [])


def test_options_that_are_repeated_are_repeated() -> None:
    assert command_line({"middleware": ["a.b", "c.d"]}, VLLM) == ("--middleware=a.b", "--middleware=c.d")


def test_every_described_version_can_be_read() -> None:
    assert all(pinned_vllm(version) for version in known_versions())


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"middleware": "evil.Backdoor"}, [("middleware", "evil.Backdoor")]),
        ({"middleware": ["a.B", "c.D"]}, [("middleware", "a.B"), ("middleware", "c.D")]),
        ({"worker-extension-cls": "evil.Ext"}, [("worker-extension-cls", "evil.Ext")]),
        ({"lora-modules": {"name": "x", "path": "/x"}}, [("lora-modules", "x"), ("lora-modules", "/x")]),
        (
            {"speculative-config": {"model": "acme/draft", "num_speculative_tokens": 2}},
            [("speculative-config.model", "acme/draft")],
        ),
        (
            {"kv-transfer-config": {"kv_connector_module_path": "evil"}},
            [("kv-transfer-config.kv_connector_module_path", "evil")],
        ),
        (
            {"kv-transfer-config": {"kv-connector-module-path": "evil"}},
            [("kv-transfer-config.kv-connector-module-path", "evil")],
        ),
        ({"compilation-config": {"backend": "evil.backend"}}, [("compilation-config.backend", "evil.backend")]),
        ({"enable-log-outputs": True}, [("enable-log-outputs", "true")]),
        ({"distributed-executor-backend": "evil.Executor"}, [("distributed-executor-backend", "evil.Executor")]),
    ],
)
def test_what_it_names_is_told(args: dict[str, object], found: list[tuple[str, str]]) -> None:
    assert list(external_references(args)) == found  # type: ignore[arg-type]  # as a spec has them


@pytest.mark.parametrize(
    "args",
    [
        {"max-model-len": 4096, "enable-log-outputs": False, "distributed-executor-backend": "mp"},
        {"speculative-config": {"method": "ngram", "num_speculative_tokens": 2}},
        {"compilation-config": {"backend": "inductor", "mode": 3}},
        {"kv-transfer-config": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}},
    ],
)
def test_what_names_nothing_is_free(args: dict[str, object]) -> None:
    assert list(external_references(args)) == []  # type: ignore[arg-type]  # as a spec has them


def test_every_argument_is_one_of_the_pinned_vllms() -> None:
    vllm = pinned_vllm(known_versions()[-1])
    assert vllm is not None
    assert (RUNS_CODE | UNPROVEN | REVEALS | WITHIN.keys()) <= vllm.options.keys()
