"""Sources of metrics in a spec: what each preset has, whose series are whose, and what is refused."""

from __future__ import annotations

import pytest

from tidegate.core.metrics import MetricNames, MetricSignal, MetricSource, PresetName, presets, source_of, untold
from tidegate.core.spec import SpecError, parse_spec

ARMS = "arms: {stable: llm-stable, canary: llm-canary}"


def read(*sources: str) -> tuple[MetricSource, ...]:
    return parse_spec(
        "sources:\n" + "".join(f"  - {{{each}}}\n" for each in sources), MetricNames, file="m.yaml"
    ).sources


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "region: cluster",
            "m.yaml:2: sources[0]: found no metric; expected a `preset` (vllm, llm-d-inference-sim, sglang,",
        ),
        ("preset: linkerd", "m.yaml:2: sources[0].preset: found 'linkerd'; expected"),
        ("preset: istio", "sources[0].arms: found nothing; expected the values of a label: {stable: VALUE"),
        (
            f"preset: istio, {ARMS}, signals: [ttft]",
            "signals[0]: found ttft, which this source does not have; expected one of",
        ),
        ("preset: nginx, arms: {stable: a, canary: a}", "arms.canary: found 'a'; expected another value than stable's"),
        ("preset: nginx, arms: {stable: '{hash}', canary: a}", "arms.stable: found '{hash}'; expected"),
        (
            "ttft: {metric: my_ttft}, arms: {stable: a, canary: b}",
            "arms.label: found nothing; expected the label that tells",
        ),
        (f"preset: istio, {ARMS}, match: {{ns: '('}}", "match.ns: found '('; expected a regular expression"),
        (f"ttft: {{metric: 'a b'}}, {ARMS}", "ttft.metric: found 'a b'"),
        (f"ttft: {{metric: a, unit: ms}}, {ARMS}", "ttft.unit: found 'ms'; expected 'seconds' or 'milliseconds'"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(source: str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(source)
    assert sentence in str(caught.value)


def test_a_source_of_which_nothing_is_read_is_refused() -> None:
    with pytest.raises(SpecError, match=r"m.yaml:3: sources\[1\]: found a source of which nothing is read \(istio"):
        read(f"preset: istio, {ARMS}", f"preset: istio, {ARMS}")


def test_each_signal_is_read_from_the_first_that_has_it() -> None:
    mesh, engines = read(f"preset: istio, {ARMS}", "preset: vllm")
    found = {signal: source_of((mesh, engines), signal) for signal in MetricSignal}
    assert found == {signal: mesh if signal in {"requests", "e2e"} else engines for signal in MetricSignal}


PROXIES = "requests e2e"
HAS = {
    "vllm": "requests ttft itl e2e queue_time engines",
    "llm-d-inference-sim": "ttft itl e2e queue_time",
    "sglang": "requests ttft itl e2e",
    "tgi": "itl e2e queue_time",
    "triton": "ttft",
    **dict.fromkeys(("istio", "envoy-gateway", "nginx"), PROXIES),
}


@pytest.mark.parametrize("name", PresetName)
def test_presets_have_what_their_exporters_have(name: PresetName) -> None:
    assert " ".join(signal for signal in MetricSignal if getattr(presets()[name], signal)) == HAS[name]


def test_what_nobody_tells_names_who_does() -> None:
    (odd,) = untold(read(f"preset: istio, {ARMS}"), MetricSignal.TTFT, ("gates", "latency", "metric"))
    assert odd.found == "ttft, which no source of `metrics.sources` has (istio: requests, e2e)"
    engines = "vllm or llm-d-inference-sim or sglang or triton"
    assert odd.expected == f"a source with preset {engines}, or its metric by hand at metrics.sources[0].ttft"
    assert not list(untold((), MetricSignal.TTFT, ()))


@pytest.mark.parametrize(
    ("source", "role", "labels"),
    [
        ("preset: vllm", "stable", {"service": "llm", "region": "eu", "role": "stable", "version": "7"}),
        ("preset: vllm", "shadow", {"service": "llm", "region": "eu", "role": "canary", "version": "7"}),
        (f"preset: istio, {ARMS}", "stable", {"destination_service_name": "llm-stable"}),
        (
            f"preset: istio, {ARMS}, region: cluster",
            "canary",
            {"destination_service_name": "llm-canary", "cluster": "eu"},
        ),
        (
            "preset: istio, arms: {label: destination_canonical_revision, stable: 'v{version}', canary: 'v{version}'}",
            "canary",
            {"destination_canonical_revision": "v7"},
        ),
        ("preset: nginx, arms: {stable: '', canary: serving-llm-canary-80}", "stable", {"canary": ""}),
        ("preset: nginx, arms: {stable: '', canary: b, shadow: c}", "shadow", {"canary": "c"}),
    ],
)
def test_whose_series_are_whose(source: str, role: str, labels: dict[str, str]) -> None:
    (found,) = read(source)
    assert found.labels_of(service="llm", region="eu", role=role, version="7") == labels
