"""Prometheus' rules as values; `to_dict` has Prometheus' own keys, in the order in which people read them."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from slo.durations import prometheus_duration
from slo.model import Labels
from tidegate.core.model import Value

Document = dict[str, object]
"""A part of a YAML file: mappings, lists and texts."""


class Rule(Value):
    """Records a series, or raises an alert."""

    record: str = ""
    """The name of the recorded series; empty for an alert."""
    alert: str = ""
    expr: str
    hold: timedelta | None = None
    """How long an alert's expression must hold before it fires: Prometheus' key `for`."""
    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)
    """Of alerts only."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if bool(self.record) == bool(self.alert):
            raise ValueError("a rule has a record or an alert, one of them")
        if self.record and (self.annotations or self.hold):
            raise ValueError("a recording rule has neither annotations nor a hold")
        return self

    def to_dict(self) -> Document:
        name: Document = {"record": self.record} if self.record else {"alert": self.alert}
        rest: Document = {
            "for": prometheus_duration(self.hold) if self.hold else None,
            "labels": dict(sorted(self.labels.items())),
            "annotations": dict(sorted(self.annotations.items())),
        }
        return name | {"expr": self.expr} | {key: value for key, value in rest.items() if value}


class RuleGroup(Value):
    """Rules that Prometheus evaluates one after the other, at the same interval."""

    name: str
    """Unique in a file."""
    rules: tuple[Rule, ...]
    interval: timedelta | None = None
    """Prometheus' own default when absent."""

    def to_dict(self) -> Document:
        interval: Document = {"interval": prometheus_duration(self.interval)} if self.interval else {}
        return {"name": self.name} | interval | {"rules": [rule.to_dict() for rule in self.rules]}
