"""Writes SLOs in each of the three formats, so that reading them back gives the same SLOs."""

from __future__ import annotations

from typing import NamedTuple

from pydantic.alias_generators import to_camel

from slo.formats.openslo import OPENSLO_V1 as OPENSLO
from slo.formats.openslo import good_and_total
from slo.formats.sloth import DENOMINATOR_CORRECTED, PROMETHEUS_V1
from slo.formats.sloth import SLOTH_V1 as SERVICE_LEVEL
from slo.model import Alert, EventSli, KubernetesNames, Slo, SloGroup
from slo.outputs import yaml_document
from tidegate.core.errors import UsageError


class UnsupportedByFormat(UsageError):
    """A format has no words for an SLO."""


Part = dict[str, object]
"""A mapping of a YAML document; what is empty in it is left out."""


class _Spelling(NamedTuple):
    """The keys in which Sloth's two formats differ."""

    error_query: str
    total_query: str
    error_ratio_query: str
    page_alert: str
    ticket_alert: str


_SNAKE = _Spelling(*_Spelling._fields)
_CAMEL = _Spelling(*(to_camel(key) for key in _Spelling._fields))


def write_prometheus(group: SloGroup) -> str:
    """As `prometheus/v1`, which says everything but an SLO's window and interval: those are given to who reads."""
    slos = [_slo(slo, _SNAKE) for slo in group.slos]
    return _text({"version": PROMETHEUS_V1, "service": group.slos[0].service, "slos": slos})


def write_kubernetes(group: SloGroup) -> str:
    """As PrometheusServiceLevel, which says what `prometheus/v1` says; named after the service when it has no name."""
    service = group.slos[0].service
    names = group.kubernetes or KubernetesNames(name=service)
    return _text(
        {
            "apiVersion": SERVICE_LEVEL,
            "kind": "PrometheusServiceLevel",
            "metadata": _filled(names.model_dump()),
            "spec": {"service": service, "slos": [_slo(slo, _CAMEL) for slo in group.slos]},
        }
    )


def write_openslo(group: SloGroup) -> str:
    """As OpenSLO, one document an SLO: objective, window and queries, but neither labels nor alerts.

    Reading numbers the objectives of a document, so a name comes back with `-0`, once.

    Raises:
        CannotSay: when an SLI is a ratio of which good and total events are not known.
    """
    return "---\n".join(_text(_openslo(slo)) for slo in group.slos)


def _slo(slo: Slo, keys: _Spelling) -> Part:
    sli: Part
    if isinstance(slo.sli, EventSli):
        sli = {"events": {keys.error_query: slo.sli.error_query, keys.total_query: slo.sli.total_query}}
    else:
        sli = {"raw": {keys.error_ratio_query: slo.sli.error_ratio_query}}
    chain = [{"id": DENOMINATOR_CORRECTED}] if slo.denominator_corrected else []
    named = slo.page or slo.ticket
    return {
        "name": slo.name,
        **_filled({"description": slo.description}),
        "objective": slo.objective,
        **_filled({"labels": dict(slo.labels), "plugins": {"chain": chain} if chain else None}),
        "sli": sli,
        "alerting": {
            **_filled({"name": named.name if named else ""}),
            keys.page_alert: _alert(slo.page),
            keys.ticket_alert: _alert(slo.ticket),
        },
    }


def _alert(alert: Alert | None) -> Part:
    if alert is None:
        return {"disable": True}
    return _filled({"labels": dict(alert.labels), "annotations": dict(alert.annotations)})


def _openslo(slo: Slo) -> Part:
    if isinstance(slo.sli, EventSli):
        total = slo.sli.total_query
        good = f"(\n{total}\n)\n-\n(\n{slo.sli.error_query}\n)"
    else:
        known = good_and_total(slo.sli.error_ratio_query)
        if known is None:
            raise UnsupportedByFormat(
                f"{slo.id}: OpenSLO counts good and total events; this SLI is a ratio already",
                hint="write it with `events` of errors and totals, or export to another format",
            )
        good, total = known
    queries = {
        key: {"source": "prometheus", "queryType": "promql", "query": query}
        for key, query in (("good", good), ("total", total))
    }
    return {
        "apiVersion": OPENSLO,
        "kind": "SLO",
        "metadata": {"name": slo.name.removesuffix("-0")},
        "spec": {
            "service": slo.service,
            **_filled({"description": slo.description}),
            "budgetingMethod": "Occurrences",
            "timeWindows": [{"unit": "Day", "count": slo.window.days, "isRolling": True}],
            "objectives": [{"ratioMetrics": queries, "target": slo.objective / 100}],
        },
    }


def _filled(part: Part) -> Part:
    return {key: value for key, value in part.items() if value}


def _text(document: Part) -> str:
    return yaml_document(document, header="")
