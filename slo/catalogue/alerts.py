"""The two alerts of each SLO, which say in words what is wrong in which region."""

from __future__ import annotations

from typing import Literal

from slo.catalogue.words import breach, promise
from slo.model import Alert
from slo.spec import SloSpec

Severity = Literal["page", "ticket"]

OWN_RUNBOOK = "docs/slo-catalogue.md"
"""In tidegate's documentation; a section for each kind."""

_REGION = "{{ $labels.region }}"
_SHARE = "{{ $value | humanizePercentage }}"
_SPEED = {"page": "so fast that it will not last", "ticket": "faster than it may be"}


def alert(item: SloSpec, service: str, severity: Severity) -> Alert:
    """Its label `region` comes from the series that it fires on."""
    of = "of the time was" if item.kind in {"kv_cache", "quality"} else "of events were"
    return Alert(
        name="".join(word.capitalize() for word in f"{service}-{item.name}".split("-")),
        annotations={
            "summary": f"{service} in {_REGION}: {breach(item)}",
            "description": (
                f"{item.description or promise(item)}. In {_REGION}, {_SHARE} {of} bad lately; "
                f"the error budget is spent {_SPEED[severity]}."
            ),
            "runbook": item.runbook or f"{OWN_RUNBOOK}#{item.kind}",
        },
    )
