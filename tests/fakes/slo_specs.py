"""SLO groups of every kind that `prometheus/v1` can say, for properties that must hold for all of them."""

from __future__ import annotations

import string
from datetime import timedelta

from hypothesis import strategies as st

from slo.model import Alert, Events, KubernetesNames, Labels, Raw, Sli, Slo, SloGroup

MODES = {
    "prometheus/v1": "cli-gen-prom",
    "sloth.slok.dev/v1": "cli-gen-k8s",
    "openslo/v1alpha": "cli-gen-openslo",
}
"""Sloth's name for the run that reads each format."""

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


def in_format(group: SloGroup, spec: str) -> SloGroup:
    """The same promises, as if written in another format."""
    names = KubernetesNames(name=group.slos[0].service) if spec == "sloth.slok.dev/v1" else None
    return group.model_copy(update={"mode": MODES[spec], "spec": spec, "kubernetes": names})


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
            denominator_corrected=st.booleans() if isinstance(known[0], Events) else st.just(value=False),
        )
    )


def _alerts(name: str) -> st.SearchStrategy[Alert | None]:
    """Both alerts of an SLO have one name, as every format gives it."""
    return st.one_of(st.none(), st.builds(Alert, name=st.just(name), labels=labels(), annotations=labels()))


def _slis() -> st.SearchStrategy[Sli]:
    def events(metric: str, window: str) -> Events:
        total = f"sum(rate({metric.replace('-', '_')}_total[{window}]))"
        return Events(error_query=total.replace("_total[", '_total{code=~"5.."}['), total_query=total)

    def raw(metric: str, window: str) -> Raw:
        return Raw(error_ratio_query=f"avg_over_time({metric.replace('-', '_')}:ratio[{window}])")

    return st.one_of(st.builds(events, _NAME, _WINDOW), st.builds(raw, _NAME, _WINDOW))
