"""Checks of the set-up: whether the names of a delivery's objects are its own, and every definition is there."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, Severity, Snapshot, Unread
from rollouts.doctor.strategy import gateway_plugins, virtual_services
from rollouts.kube.model import Resource
from rollouts.kube.objects import at, condition
from rollouts.kube.resources import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CUSTOM_RESOURCE_DEFINITIONS,
    EXPERIMENTS,
    HTTP_ROUTES,
    ROLLOUTS,
    VIRTUAL_SERVICES,
)
from tidegate.core.model import Json

NOT_OURS = Check(
    code="not-ours",
    severity=Severity.ERROR,
    cause="objects of somebody else have the names that this delivery would use: a delivery is refused before it "
    "writes anything, and they serve whom they serve",
    remediation="take a Rollout over while it serves with `tidegate rollout adopt`, give the delivery another "
    "`metadata.name` or `fleet.namespace`, or let their owner take them away",
)


def names(snapshot: Snapshot) -> Iterator[Finding]:
    """No object of somebody else is where one of ours would be."""
    if snapshot.foreign_objects:
        count = len(snapshot.foreign_objects)
        what = f"{count} object{'s' if count > 1 else ''} of others where {snapshot.delivery} would have its own"
        yield NOT_OURS.found(what, *(str(each) for each in snapshot.foreign_objects))


CRD_MISSING = Check(
    code="crd-missing",
    severity=Severity.ERROR,
    cause="Argo Rollouts, the Gateway API or Istio is not installed, or an upgrade removed its definitions",
    remediation="install the definitions of the version that the controller runs",
)
CRD_VERSION = Check(
    code="crd-version",
    severity=Severity.ERROR,
    cause="the definitions are older or newer than what tidegate speaks",
    remediation="install definitions that serve this version",
)
CRD_NOT_ESTABLISHED = Check(
    code="crd-not-established",
    severity=Severity.ERROR,
    cause="the API server does not accept the definition: its names clash, or its schema is not structural",
    remediation="read the conditions of the definition, and install it again",
)
CRD_WITHOUT_STATUS = Check(
    code="crd-without-status",
    severity=Severity.ERROR,
    cause="definitions of Argo Rollouts before 1.0: there is no status subresource to promote or abort through",
    remediation="install the definitions of the version that the controller runs",
)


def definitions(snapshot: Snapshot) -> Iterator[Finding]:
    """Every definition that this delivery needs, in the version that tidegate speaks."""
    readable = snapshot.unread(CUSTOM_RESOURCE_DEFINITIONS) is None and snapshot.all(CUSTOM_RESOURCE_DEFINITIONS)
    for resource in _needed(snapshot):
        name = f"{resource.plural}.{resource.group}"
        definition = snapshot.named(CUSTOM_RESOURCE_DEFINITIONS, name)
        if definition is not None:
            yield from _wrong_with(definition, resource)
        elif readable or snapshot.unread(resource) is Unread.ABSENT:
            yield CRD_MISSING.found(f"there is no {name} in this cluster", f"{resource.api_version} answers 404")


def _needed(snapshot: Snapshot) -> Iterator[Resource]:
    yield from (ROLLOUTS, ANALYSIS_RUNS, ANALYSIS_TEMPLATES, EXPERIMENTS)
    rollout = snapshot.rollout
    if rollout and gateway_plugins(rollout):
        yield HTTP_ROUTES
    if rollout and virtual_services(rollout):
        yield VIRTUAL_SERVICES


def _wrong_with(definition: Json, resource: Resource) -> Iterator[Finding]:
    name = definition["metadata"]["name"]
    versions = at(definition, "spec", "versions", default=[])
    served = [version["name"] for version in versions if version.get("served")]
    if resource.version not in served:
        yield CRD_VERSION.found(f"{name} is not served as {resource.version}", f"served: {', '.join(served) or 'none'}")
        return
    established = condition(definition, "Established")
    if established and established.get("status") != "True":
        yield CRD_NOT_ESTABLISHED.found(
            f"{name} is not established", str(at(established, "message", default="no message"))
        )
    used = next(version for version in versions if version["name"] == resource.version)
    if resource == ROLLOUTS and at(used, "subresources", "status") is None:
        yield CRD_WITHOUT_STATUS.found(f"{name} has no status subresource", "spec.versions[].subresources.status")


CHECKS = (
    NOT_OURS,
    CRD_MISSING,
    CRD_VERSION,
    CRD_NOT_ESTABLISHED,
    CRD_WITHOUT_STATUS,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    names,
    definitions,
)
