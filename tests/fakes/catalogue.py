"""SLOs as people write them in `delivery.yaml`, one of each kind and any of any kind."""

from __future__ import annotations

import string
from datetime import timedelta

from hypothesis import strategies as st

from slo.metrics import Metric
from slo.metrics.vllm import TIME_PER_OUTPUT_TOKEN
from slo.spec import LATENCIES, CountedBy, SloSpec
from tidegate.core.quantities import format_duration

EACH_KIND: dict[str, dict[str, object]] = {
    "errors": {},
    "ttft": {"below": "250ms"},
    "itl": {"below": "50ms"},
    "e2e": {"below": "10s"},
    "queue_time": {"below": "1s"},
    "tokens_per_second": {"at_least": 20.0},
    "kv_cache": {"below": "90%"},
    "quality": {"at_least": 0.8},
}


def slo_spec(kind: str, *, objective: float = 99, **settings: object) -> SloSpec:
    """One of this kind; `settings` win over the usual ones."""
    said = EACH_KIND[kind] | settings
    return SloSpec.model_validate({"name": kind.replace("_", "-"), "objective": objective, kind: said})


def slo_specs() -> st.SearchStrategy[SloSpec]:
    """Any that `delivery.yaml` may hold."""
    word = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=6)
    text = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="{}"), max_size=20)
    key = st.builds(lambda name: "l_" + name, word)
    return st.builds(
        lambda kind, name, objective, window, description, labels: SloSpec.model_validate(
            {
                "name": name,
                "objective": objective,
                "window": window,
                "description": description,
                "labels": labels,
                kind[0]: kind[1],
            }
        ),
        _kinds(),
        st.builds(lambda first, second: f"{first}-{second}", word, word),
        st.integers(1, 99_999).map(lambda thousandths: thousandths / 1000),
        st.sampled_from([timedelta(days=28), timedelta(days=30)]),
        text,
        st.dictionaries(key, st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1), max_size=2),
    )


def _kinds() -> st.SearchStrategy[tuple[str, dict[str, object]]]:
    shares = st.integers(1, 99)
    return st.one_of(
        st.sampled_from([None, *CountedBy]).map(lambda who: ("errors", {"counted_by": who})),
        st.one_of([_below(kind, histogram) for kind, histogram in LATENCIES.items()]),
        st.sampled_from(TIME_PER_OUTPUT_TOKEN.edges).map(
            lambda edge: ("tokens_per_second", {"at_least": float(f"{1 / edge:.3g}")})
        ),
        shares.map(lambda percent: ("kv_cache", {"below": f"{percent}%"})),
        shares.map(lambda percent: ("quality", {"at_least": percent / 100, "dimension": "safety"})),
    )


def _below(kind: str, histogram: Metric) -> st.SearchStrategy[tuple[str, dict[str, object]]]:
    edges = [format_duration(timedelta(seconds=edge)) for edge in histogram.edges]
    return st.sampled_from(edges).map(lambda edge: (kind, {"below": edge}))
