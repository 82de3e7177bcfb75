"""What an SLO is, whatever format it was written in: names are merged, defaults filled in, queries unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from pydantic import Field

from tidegate.core.model import Value

Labels = Mapping[str, str]

WINDOW_PLACE = re.compile(r"\{\{ *\.window *\}\}")
"""Where the range of a query goes."""


class EventSli(Value):
    """Bad events over all events; each query has `{{.window}}` where its range goes."""

    error_query: str
    total_query: str


class RawSli(Value):
    """A query that gives the share of bad events itself, 0 to 1."""

    error_ratio_query: str


Sli = EventSli | RawSli


class Alert(Value):
    """One of an SLO's two alerts: page wakes somebody, ticket waits for the morning."""

    name: str
    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)


class Slo(Value):
    """One promise: so many percent of a service's events are good, over a window."""

    service: str
    name: str
    description: str = ""
    objective: float = Field(gt=0, le=100)
    """Percent of good events, such as 99.9."""
    window: timedelta = timedelta(days=30)
    labels: Labels = Field(default_factory=dict)
    """Of all its rules; those of its group are merged in."""
    sli: Sli
    canary: Labels = Field(default_factory=dict)
    """By which the events of a canary are told, with `{{args.NAME}}` where a Rollout says something; as our own
    scrape configuration has it when empty."""
    page: Alert | None = None
    """None when it is disabled."""
    ticket: Alert | None = None

    @property
    def id(self) -> str:
        """Names it in every rule; unique over all files that are generated together."""
        return f"{self.service}-{self.name}"

    @property
    def error_budget(self) -> float:
        """The share of events that may be bad, 0 to 1."""
        return (100 - self.objective) / 100


class KubernetesNames(Value):
    """Metadata of the object that an SLO came in, kept by the objects made from it."""

    name: str
    namespace: str = ""
    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)


class SloGroup(Value):
    """The SLOs of one document."""

    slos: tuple[Slo, ...] = Field(min_length=1)
    mode: str
    """Who generates, as Sloth's label `sloth_mode` says it: cli-gen-prom, cli-gen-k8s, cli-gen-openslo."""
    spec: str
    """The format it was written in, Sloth's label `sloth_spec`: prometheus/v1, sloth.slok.dev/v1, openslo/v1alpha."""
    kubernetes: KubernetesNames | None = None
