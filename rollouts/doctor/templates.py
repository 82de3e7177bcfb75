"""The analysis templates that a Rollout uses: where, with which arguments, and what they ask Prometheus then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rollouts.doctor.model import Snapshot
from rollouts.doctor.objects import at, labels_of
from rollouts.doctor.questions import Question
from rollouts.doctor.strategy import canary, steps
from rollouts.kube.model import Json
from rollouts.kube.resources import ANALYSIS_TEMPLATES, CLUSTER_ANALYSIS_TEMPLATES
from tidegate.core.model import Value

_PLACE = re.compile(r"\{\{\s*args\.([\w.-]+?)\s*\}\}")
_FIELD = re.compile(r"metadata\.labels\['([^']+)'\]")
"""How fieldRef names a label of the Rollout."""


class Use(Value):
    """One place of a Rollout that names a template."""

    place: str
    """Such as `steps[2].analysis`."""
    name: str
    kind: str
    template: Json | None
    """None when it is not there."""
    given: Mapping[str, str | None] = {}
    """The Rollout's arguments; None for a value that only the controller knows."""

    @property
    def arguments(self) -> Mapping[str, str | None]:
        """All that have a value, those of the Rollout before the template's own."""
        own = {
            argument["name"]: argument.get("value")
            for argument in at(self.template, "spec", "args", default=[])
            if "value" in argument or "valueFrom" in argument
        }
        return own | dict(self.given)

    @property
    def open_arguments(self) -> list[str]:
        """Those that nobody gives a value."""
        asked = [argument["name"] for argument in at(self.template, "spec", "args", default=[])]
        return [name for name in asked if name not in self.arguments]


def uses(snapshot: Snapshot) -> Iterator[Use]:
    """Every place of the Rollout that names a template: in the background, in steps, before and after a promotion."""
    rollout = snapshot.rollout
    if rollout is None:
        return
    for place, analysis in _analyses(rollout):
        given = {argument["name"]: _value(argument, rollout) for argument in at(analysis, "args", default=[])}
        for named in at(analysis, "templates", default=[]):
            wide = bool(named.get("clusterScope"))
            resource = CLUSTER_ANALYSIS_TEMPLATES if wide else ANALYSIS_TEMPLATES
            if snapshot.unread(resource):
                continue
            name = str(named.get("templateName"))
            template = snapshot.named(resource, name)
            yield Use(place=place, name=name, kind=resource.kind, template=template, given=given)


def questions(snapshot: Snapshot) -> Iterator[Question]:
    """What these templates ask Prometheus, as far as every argument in the query is known."""
    for use in uses(snapshot):
        for metric in at(use.template, "spec", "metrics", default=[]):
            query = at(metric, "provider", "prometheus", "query")
            filled = _filled(query, use.arguments) if query else None
            if filled:
                conditions = f"{metric.get('successCondition', '')} {metric.get('failureCondition', '')}"
                yield Question(
                    asked_by=f"{use.kind} {use.name}, metric {metric.get('name')}",
                    query=filled,
                    silent_without_traffic="len(result)" in conditions,
                )


def template_names(rollout: Json, *, cluster: bool) -> tuple[str, ...]:
    """The templates that a Rollout names: those of its namespace, or those of the whole cluster."""
    named = [one for _, analysis in _analyses(rollout) for one in at(analysis, "templates", default=[])]
    return tuple(str(one.get("templateName")) for one in named if bool(one.get("clusterScope")) is cluster)


def _analyses(rollout: Json) -> Iterator[tuple[str, Json]]:
    if analysis := at(canary(rollout), "analysis"):
        yield "the analysis in the background", analysis
    for index, step in enumerate(steps(rollout)):
        if analysis := at(step, "analysis"):
            yield f"steps[{index}].analysis", analysis
    blue_green = at(rollout, "spec", "strategy", "blueGreen", default={})
    for field in ("prePromotionAnalysis", "postPromotionAnalysis"):
        if analysis := at(blue_green, field):
            yield field, analysis


def _value(argument: Json, rollout: Json) -> str | None:
    """A value, or what the controller would take: a pod hash, or a label of the Rollout."""
    if "value" in argument:
        return str(argument["value"])
    hashes = {"Latest": "currentPodHash", "Stable": "stableRS"}
    field = hashes.get(at(argument, "valueFrom", "podTemplateHashValue", default=""))
    if field:
        return str(at(rollout, "status", field)) if at(rollout, "status", field) else None
    named = _FIELD.search(at(argument, "valueFrom", "fieldRef", "fieldPath", default=""))
    return labels_of(rollout).get(named[1]) if named else None


def _filled(query: str, arguments: Mapping[str, str | None]) -> str | None:
    """The query with every argument's value; None when one is not known here."""
    if any(arguments.get(name) is None for name in _PLACE.findall(query)):
        return None
    return _PLACE.sub(lambda place: str(arguments[place[1]]), query)
