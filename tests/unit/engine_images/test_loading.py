"""What vLLM would load because an argument names it."""

from __future__ import annotations

import pytest

from engine_images.arguments.loading import REVEALS, RUNS_CODE, UNPROVEN, WITHIN, loaded
from engine_images.pinned.catalogue import known_versions, pinned_vllm


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
    assert list(loaded(args)) == found  # type: ignore[arg-type]  # as a spec has them


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
    assert list(loaded(args)) == []  # type: ignore[arg-type]  # as a spec has them


def test_every_argument_is_one_of_the_pinned_vllms() -> None:
    vllm = pinned_vllm(known_versions()[-1])
    assert vllm is not None
    assert (RUNS_CODE | UNPROVEN | REVEALS | WITHIN.keys()) <= vllm.options.keys()
