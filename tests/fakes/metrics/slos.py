"""SLOs as people write them: of each kind and any of any kind, in `delivery.yaml`, `prometheus/v1`, for dashboards."""

from __future__ import annotations

import string
from datetime import timedelta

from hypothesis import strategies as st

from slo.metrics import TIME_PER_OUTPUT_TOKEN, PrometheusMetric
from slo.model import Alert, EventSli, Labels, RawSli, Sli, Slo, SloGroup
from slo.spec import LATENCIES, CostSpec, CountedBy, SloSpec
from tidegate.core.units import format_duration

SLOS = tuple(
    SloSpec.model_validate(item)
    for item in (
        {"name": "availability", "objective": 99.9, "errors": {}},
        {"name": "ttft", "objective": 99, "ttft": {"below": "250ms"}},
        {"name": "itl", "objective": 99, "itl": {"below": "50ms"}},
        {"name": "whole", "objective": 99, "e2e": {"below": "10s"}},
        {"name": "room", "objective": 95, "kv_cache": {"below": "90%"}},
        {"name": "good", "objective": 95, "quality": {"at_least": 0.8}},
    )
)
COST = CostSpec(per_engine_hour=2.5, budget_per_month=4000)


EACH_KIND: dict[str, dict[str, object]] = {
    "errors": {},
    "ttft": {"below": "250ms"},
    "itl": {"below": "50ms"},
    "e2e": {"below": "10s"},
    "queue_time": {"below": "1s"},
    "tokens_per_second": {"at_least": 20.0},
    "kv_cache": {"below": "90%"},
    "quality": {"at_least": 0.8},
    "start": {"below": "5m"},
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
        st.integers(50_000, 99_999).map(lambda thousandths: thousandths / 1000),
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
        shares.map(lambda minutes: ("start", {"below": f"{minutes}m"})),
    )


def _below(kind: str, histogram: PrometheusMetric) -> st.SearchStrategy[tuple[str, dict[str, object]]]:
    edges = [format_duration(timedelta(seconds=edge)) for edge in histogram.edges]
    return st.sampled_from(edges).map(lambda edge: (kind, {"below": edge}))


_LETTERS = st.sampled_from(string.ascii_lowercase)
_WORD = st.text(string.ascii_lowercase + string.digits + "-", min_size=0, max_size=8)
_NAME = st.builds(lambda first, middle, last: first + middle + last, _LETTERS, _WORD, _LETTERS)
_KEY = st.builds(lambda name: "l_" + name.replace("-", "_"), _NAME)
_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_WINDOW = st.sampled_from(["{{.window}}", "{{ .window }}"])


def labels() -> st.SearchStrategy[Labels]:
    """Labels or annotations that Prometheus takes."""
    return st.dictionaries(_KEY, _TEXT, max_size=2)


def slo_groups() -> st.SearchStrategy[SloGroup]:
    """Valid groups: events and raw SLIs, with and without either alert, names unique within each."""
    return _NAME.flatmap(
        lambda service: st.builds(
            SloGroup,
            slos=st.lists(_slos(service), min_size=1, max_size=3, unique_by=lambda slo: slo.name).map(tuple),
            mode=st.just("cli-gen-prom"),
            spec=st.just("prometheus/v1"),
        )
    )


def _slos(service: str) -> st.SearchStrategy[Slo]:
    return st.tuples(_slis(), _NAME).flatmap(
        lambda known: st.builds(
            Slo,
            service=st.just(service),
            name=_NAME,
            description=st.one_of(st.just(""), _TEXT),
            objective=st.integers(1, 99_999).map(lambda thousandths: thousandths / 1000),
            window=st.just(timedelta(days=30)),
            labels=labels(),
            sli=st.just(known[0]),
            page=_alerts(known[1]),
            ticket=_alerts(known[1]),
        )
    )


def _alerts(name: str) -> st.SearchStrategy[Alert | None]:
    """Both alerts of an SLO have one name, as every format gives it."""
    return st.one_of(st.none(), st.builds(Alert, name=st.just(name), labels=labels(), annotations=labels()))


def _slis() -> st.SearchStrategy[Sli]:
    def events(metric: str, window: str) -> EventSli:
        total = f"sum(rate({metric.replace('-', '_')}_total[{window}]))"
        return EventSli(error_query=total.replace("_total[", '_total{code=~"5.."}['), total_query=total)

    def raw(metric: str, window: str) -> RawSli:
        return RawSli(error_ratio_query=f"avg_over_time({metric.replace('-', '_')}:ratio[{window}])")

    return st.one_of(st.builds(events, _NAME, _WINDOW), st.builds(raw, _NAME, _WINDOW))
