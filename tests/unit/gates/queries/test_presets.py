"""Presets name what vLLM exports, and fill in only what a gate does not say itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gates.analyses.queries import PrometheusGate, asking_prometheus
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from gates.spec import GATE_KINDS, Gates
from slo.metrics import VLLM, MetricKind

ALL = [
    (kind.name, preset) for kind in GATE_KINDS.values() if issubclass(kind, PrometheusGate) for preset in kind.presets
]
KNOWN = {metric.name: metric for metric in VLLM}
SUFFIXES = ("_bucket", "_sum", "_count")


def settings_of(kind: str, preset: str, **more: object) -> Any:
    return Gates.model_validate({"mine": {"kind": kind, "preset": preset, **more}}).asked["mine"]


@pytest.mark.parametrize(("kind", "preset"), ALL)
def test_a_preset_is_a_whole_gate(kind: str, preset: str) -> None:
    gates = Gates.model_validate({"mine": {"kind": kind, "preset": preset}})
    assert list(asking_prometheus(gates.asked)) == ["mine"]
    plan = analysis_plan_of(gates, gates.asked, sources={}, share=1.0)
    assert AnalysisPlan.model_validate_json(plan.model_dump_json()) == plan
    asked = [text for text in gates.asked["mine"].model_dump().values() if isinstance(text, str) and "{{" in text]
    assert asked and all('region="{{.region}}",version="{{.version}}"' in text for text in asked)


@pytest.mark.parametrize(("kind", "preset"), [each for each in ALL if each[1].startswith("vllm-")])
def test_vllm_exports_what_its_presets_read(kind: str, preset: str) -> None:
    read = str(settings_of(kind, preset))
    names = set(re.findall(r"vllm:[a-z_]+", read))
    assert names
    for name in names:
        plain = next((name.removesuffix(end) for end in SUFFIXES if name.removesuffix(end) in KNOWN), name)
        metric = KNOWN[plain]
        assert (metric.kind is MetricKind.HISTOGRAM) == (plain != name)
        for edge in re.findall(rf'{name}{{le="([^"]+)"', read):
            assert float(edge) in metric.edges
        for label in re.findall(rf'{name}{{([a-z_]+)="[^"{{]+",', read):
            assert label == "le" or label in metric.labels


def test_what_a_gate_says_itself_counts_instead() -> None:
    own = settings_of("ratio", "thumbs-down", trials='stars_total{version="{{.version}}"}', max_increase="9pp")
    assert own.trials.startswith("stars_total") and own.events.startswith("chat_ratings_total")
    assert own.max_increase == pytest.approx(0.09)
    others = settings_of("mean", "vllm-output-tokens", labels='service="chat",version="{{.version}}"')
    assert others.sum == 'vllm:request_generation_tokens_sum{service="chat",version="{{.version}}"}'


def test_a_preset_of_another_kind_or_of_none_is_refused() -> None:
    with pytest.raises(
        ValueError, match="one of vllm-queue-time, vllm-truncated, thumbs-down, retries, tool-call-fail"
    ):
        settings_of("ratio", "vllm-kv-cache")
    with pytest.raises(ValueError, match="one of vllm-kv-cache, vllm-preemptions"):
        settings_of("query", "thumbs-down")
    with pytest.raises(ValueError, match="a label that tells the arms apart"):
        settings_of("ratio", "thumbs-down", labels='service="chat"')
