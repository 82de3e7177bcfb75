"""Sloth's Kubernetes object, PrometheusServiceLevel of `sloth.slok.dev/v1`."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from slo.formats.sloth_parts import AlertingPart, EventsPart, RawPart, ServicePart, SliPart, SloPart
from slo.model import KubernetesNames, SloGroup
from tidegate.core.model import SpecModel

API_VERSION = "sloth.slok.dev/v1"
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


class Metadata(SpecModel):
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
    metadata: Metadata
    spec: ServiceLevelSpec
    status: object = None
    """The operator's; not read."""

    def group(self) -> SloGroup:
        """Labels merged, the inner ones winning; the object's names go to the object made of it."""
        names = KubernetesNames.model_validate(self.metadata.model_dump())
        return SloGroup(slos=self.spec.merged(), mode="cli-gen-k8s", spec=API_VERSION, kubernetes=names)
