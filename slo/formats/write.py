"""Writes SLOs as Sloth's `prometheus/v1`, so that reading them back gives the same SLOs."""

from __future__ import annotations

from slo.formats.sloth import DENOMINATOR_CORRECTED, PROMETHEUS_V1
from slo.model import Alert, EventSli, Slo, SloGroup
from tidegate.core.model import Json
from tidegate.core.yaml_text import yaml_text


def write_prometheus(group: SloGroup) -> str:
    """All but an SLO's window and interval: those are given to who reads."""
    slos = [_slo(slo) for slo in group.slos]
    return yaml_text({"version": PROMETHEUS_V1, "service": group.slos[0].service, "slos": slos})


def _slo(slo: Slo) -> Json:
    """Without what is empty."""
    kind = "events" if isinstance(slo.sli, EventSli) else "raw"
    chain = [{"id": DENOMINATOR_CORRECTED}] if slo.denominator_corrected else []
    named = slo.page or slo.ticket
    return {
        "name": slo.name,
        **_filled({"description": slo.description}),
        "objective": slo.objective,
        **_filled({"labels": dict(slo.labels), "plugins": {"chain": chain} if chain else None}),
        "sli": {kind: slo.sli.model_dump()},
        "alerting": {
            **_filled({"name": named.name if named else ""}),
            "page_alert": _alert(slo.page),
            "ticket_alert": _alert(slo.ticket),
        },
    }


def _alert(alert: Alert | None) -> Json:
    if alert is None:
        return {"disable": True}
    return _filled({"labels": dict(alert.labels), "annotations": dict(alert.annotations)})


def _filled(part: Json) -> Json:
    return {key: value for key, value in part.items() if value}
