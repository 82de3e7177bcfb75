"""Writes SLOs in Sloth's two formats, so that reading them back gives the same SLOs."""

from __future__ import annotations

from typing import NamedTuple

from pydantic.alias_generators import to_camel

from slo.formats.sloth import DENOMINATOR_CORRECTED, PROMETHEUS_V1
from slo.formats.sloth import SLOTH_V1 as SERVICE_LEVEL
from slo.model import Alert, EventSli, KubernetesNames, Slo, SloGroup
from slo.outputs import yaml_document

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


def _filled(part: Part) -> Part:
    return {key: value for key, value in part.items() if value}


def _text(document: Part) -> str:
    return yaml_document(document, header="")
