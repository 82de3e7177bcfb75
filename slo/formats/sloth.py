"""Sloth's two formats: its own `prometheus/v1`, also written, and the object PrometheusServiceLevel in camelCase."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from slo.formats.fields import AnnotationTexts, LabelTexts, Name, Percent, Query
from slo.model import Alert, EventSli, KubernetesNames, Labels, RawSli, Sli, Slo, SloGroup
from tidegate.core.model import Json, SpecModel, at_odds
from tidegate.core.yaml_text import yaml_text


class EventsPart(SpecModel):
    """Bad events over all events."""

    error_query: Query
    total_query: Query

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.error_query == self.total_query:
            raise at_odds("the same query for errors and for the total", "two queries that differ")
        return self


class RawPart(SpecModel):
    """A query that gives the share of bad events itself."""

    error_ratio_query: Query


class SliPart(SpecModel):
    """What is measured, in one of two ways."""

    one_of = ("events", "raw")

    events: EventsPart | None = None
    raw: RawPart | None = None

    def sli(self) -> Sli:
        if self.events:
            return EventSli(error_query=self.events.error_query, total_query=self.events.total_query)
        assert self.raw is not None
        return RawSli(error_ratio_query=self.raw.error_ratio_query)


class AlertPart(SpecModel):
    """What one alert has besides what both have."""

    disable: bool = False
    labels: LabelTexts = Field(default_factory=dict)
    annotations: AnnotationTexts = Field(default_factory=dict)


class AlertingPart(SpecModel):
    """Both alerts of an SLO."""

    name: str = ""
    labels: LabelTexts = Field(default_factory=dict)
    annotations: AnnotationTexts = Field(default_factory=dict)
    page_alert: AlertPart = AlertPart()
    ticket_alert: AlertPart = AlertPart()

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not self.name and not (self.page_alert.disable and self.ticket_alert.disable):
            raise at_odds("alerts without a name", "a name, or page and ticket disabled")
        return self

    def alert(self, own: AlertPart) -> Alert | None:
        """What an alert says itself wins over what both say."""
        if own.disable:
            return None
        labels, annotations = self.labels | own.labels, self.annotations | own.annotations
        return Alert(name=self.name, labels=labels, annotations=annotations)


class SloPart(SpecModel):
    """One promise of a service."""

    name: Name
    description: str = ""
    objective: Percent
    labels: LabelTexts = Field(default_factory=dict)
    sli: SliPart
    alerting: AlertingPart

    def slo(self, *, service: str, labels: Labels) -> Slo:
        """`labels` are the group's, over which its own win."""
        alerting = self.alerting
        return Slo(
            service=service,
            name=self.name,
            description=self.description,
            objective=self.objective,
            labels={**labels, **self.labels},
            sli=self.sli.sli(),
            page=alerting.alert(alerting.page_alert),
            ticket=alerting.alert(alerting.ticket_alert),
        )


class ServicePart(SpecModel):
    """The SLOs of one service, whatever the document around them."""

    service: Name
    labels: LabelTexts = Field(default_factory=dict)
    slos: tuple[SloPart, ...] = Field(min_length=1)

    def merged(self) -> tuple[Slo, ...]:
        """Each SLO with the labels of all of them; its own win."""
        return tuple(part.slo(service=self.service, labels=self.labels) for part in self.slos)


PROMETHEUS_V1 = "prometheus/v1"


class PrometheusV1(ServicePart):
    """The document: the SLOs of one service, and the format's version."""

    version: Literal["prometheus/v1"]

    def group(self) -> SloGroup:
        """Labels merged, the inner ones winning."""
        return SloGroup(slos=self.merged(), mode="cli-gen-prom", spec=PROMETHEUS_V1)


SLOTH_V1 = "sloth.slok.dev/v1"
_CAMEL = ConfigDict(alias_generator=to_camel)


class ObjectEvents(EventsPart):
    """Bad events over all events."""

    model_config = _CAMEL


class ObjectRaw(RawPart):
    """A query that gives the share of bad events itself."""

    model_config = _CAMEL


class ObjectSli(SliPart):
    """What is measured, in one of two ways."""

    events: ObjectEvents | None = None
    raw: ObjectRaw | None = None


class ObjectAlerting(AlertingPart):
    """Both alerts of an SLO."""

    model_config = _CAMEL


class ObjectSlo(SloPart):
    """One promise of a service."""

    sli: ObjectSli
    alerting: ObjectAlerting


class ObjectMetadata(SpecModel):
    """Of the object; what a cluster adds to it is not ours to judge."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(min_length=1)
    namespace: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class ServiceLevelSpec(ServicePart):
    """The SLOs of one service."""

    model_config = _CAMEL

    slos: tuple[ObjectSlo, ...] = Field(min_length=1)


class PrometheusServiceLevel(SpecModel):
    """The object as a cluster has it."""

    api_version: Literal["sloth.slok.dev/v1"] = Field(alias="apiVersion")
    kind: Literal["PrometheusServiceLevel"]
    metadata: ObjectMetadata
    spec: ServiceLevelSpec
    status: object = None
    """The operator's; not read."""

    def group(self) -> SloGroup:
        """Labels merged, the inner ones winning; the object's names go to the object made of it."""
        names = KubernetesNames.model_validate(self.metadata.model_dump())
        return SloGroup(slos=self.spec.merged(), mode="cli-gen-k8s", spec=SLOTH_V1, kubernetes=names)


def write_prometheus(group: SloGroup) -> str:
    """SLOs as text, so that reading them back gives the same: all but the window, given to who reads."""
    slos = [_slo(slo) for slo in group.slos]
    return yaml_text({"version": PROMETHEUS_V1, "service": group.slos[0].service, "slos": slos})


def _slo(slo: Slo) -> Json:
    """Without what is empty."""
    kind = "events" if isinstance(slo.sli, EventSli) else "raw"
    named = slo.page or slo.ticket
    return {
        "name": slo.name,
        **_filled({"description": slo.description}),
        "objective": slo.objective,
        **_filled({"labels": dict(slo.labels)}),
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
