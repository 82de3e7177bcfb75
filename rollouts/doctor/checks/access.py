"""Checks of access: the rights that a delivery needs, clocks, and the admission policies that bound those rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import yaml

from rollouts.doctor.model import Check, Finding, Severity, Snapshot, Unread
from rollouts.kube.objects import at, name_of, said
from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES
from tidegate.core.model import Json

ACCESS_DENIED = Check(
    code="access-denied",
    severity=Severity.ERROR,
    cause="the credentials of this region's context may not do what a delivery has to do",
    remediation="bind them to the Role that `tidegate rollout render` writes",
)
CLOCK_SKEW = Check(
    code="clock-skew",
    severity=Severity.WARNING,
    cause="this machine's clock and the API server's differ: windows of evidence and deadlines are off by as much",
    remediation="let both follow one time server",
)

TOLERATED = timedelta(seconds=5)
"""Less than a scrape interval; the Date header itself is in whole seconds."""


def rights(snapshot: Snapshot) -> Iterator[Finding]:
    """Every right that a delivery needs."""
    denied = [access.question for access in snapshot.access if not access.allowed]
    if denied:
        yield ACCESS_DENIED.found(
            f"{len(denied)} of {len(snapshot.access)} rights are missing in namespace {snapshot.namespace}",
            *(f"may not {question}" for question in denied),
        )


def clock(snapshot: Snapshot) -> Iterator[Finding]:
    """The API server's Date header is near our own clock."""
    skew = snapshot.skew
    if skew is not None and abs(skew) > TOLERATED:
        which = "ahead of" if skew > timedelta() else "behind"
        seconds = abs(skew).total_seconds()
        yield CLOCK_SKEW.found(f"the API server's clock is {seconds:.0f} s {which} this machine's", "its Date header")


ADMISSION_ABSENT = Check(
    code="admission-absent",
    severity=Severity.WARNING,
    cause="rights say which kinds tidegate may write and not what stands in them: the one who has its token may run "
    "any pod of the namespace",
    remediation="apply what `tidegate rollout render --part admission` writes; it needs Kubernetes 1.30",
)
ADMISSION_LOOSE = Check(
    code="admission-loose",
    severity=Severity.WARNING,
    cause="the policies that hold tidegate to its own objects are there and do not refuse what this spec and its trust "
    "file would have refused",
    remediation="apply what `tidegate rollout render --part admission` writes again; it is an administrator's to do "
    "after a change of the spec or of the trust file",
)
WORKFLOWS_FREE = Check(
    code="workflows-unrestricted",
    severity=Severity.WARNING,
    cause="the one who may create Workflows may write steps of their own into them and choose their account: Argo "
    "Workflows is not told to run templates alone",
    remediation="set `workflowRestrictions: {templateReferencing: Secure}` in its ConfigMap",
)

_KINDS = (ADMISSION_POLICIES, ADMISSION_BINDINGS)
_TOLD = ("failurePolicy", "matchConditions", "variables", "validations")
_ENOUGH = {"Secure", "Strict"}


def absent(snapshot: Snapshot) -> Iterator[Finding]:
    """Every policy of the delivery and its binding are there."""
    missing = [each for each in _wanted(snapshot) if _live(snapshot, each) is None]
    if missing:
        what = f"{len(missing)} of {len(list(_wanted(snapshot)))} objects that hold tidegate to its own are not there"
        yield ADMISSION_ABSENT.found(what, *(said(each) for each in missing))


def loose(snapshot: Snapshot) -> Iterator[Finding]:
    """Each of them says what is rendered now, and its word counts."""
    pairs = ((each, _live(snapshot, each)) for each in _wanted(snapshot))
    evidence = [f"{said(each)}: {why}" for each, live in pairs if live for why in _differences(each, live)]
    if evidence:
        yield ADMISSION_LOOSE.found("policies refuse less than they should, or something else", *evidence)


def workflows(snapshot: Snapshot) -> Iterator[Finding]:
    """Argo Workflows, where the delivery's steps may run, takes templates as they are."""
    config = snapshot.workflows_config
    if config is None:
        return
    found = _referencing(at(config, "data", default={}))
    if found not in _ENOUGH:
        where = f"{at(config, 'metadata', 'namespace', default='')}/{name_of(config)}"
        yield WORKFLOWS_FREE.found(
            f"Argo Workflows runs whatever a Workflow says: templateReferencing is {found or 'not set'}",
            f"ConfigMap {where}",
        )


def _wanted(snapshot: Snapshot) -> Iterator[Json]:
    """As rendered, of kinds that could be read."""
    unread = {kind.kind for kind in _KINDS if snapshot.unread(kind) is Unread.FORBIDDEN}
    return (each for each in snapshot.admission if each["kind"] not in unread)


def _live(snapshot: Snapshot, wanted: Json) -> Json | None:
    (kind,) = (each for each in _KINDS if each.kind == wanted["kind"])
    return snapshot.named(kind, name_of(wanted))


def _differences(wanted: Json, live: Json) -> Iterator[str]:
    if wanted["kind"] == ADMISSION_BINDINGS.kind:
        if "Deny" not in at(live, "spec", "validationActions", default=[]):
            yield "does not deny"
        if at(live, "spec", "policyName") != wanted["spec"]["policyName"]:
            yield f"binds {at(live, 'spec', 'policyName')}"
        if at(live, "spec", "matchResources"):
            yield "is narrowed by matchResources"
        return
    for field in _TOLD:
        if not _covers(wanted["spec"].get(field, []), at(live, "spec", field, default=[])):
            yield f"has another {field}"
    constraints = at(live, "spec", "matchConstraints", default={})
    if not _covers(wanted["spec"]["matchConstraints"], constraints) or constraints.get("excludeResourceRules"):
        yield "is about other objects"


def _covers(wanted: Any, live: Any) -> bool:
    """Whether all that is wanted is so; a server adds fields with what they mean when nobody says them."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers(part, live.get(key)) for key, part in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(wanted) == len(live)
            and all(_covers(one, other) for one, other in zip(wanted, live, strict=True))
        )
    return bool(wanted == live)


def _referencing(data: Mapping[str, str]) -> str:
    """What it is set to; its configuration is one text under `config`, or one under each key."""
    try:
        whole = yaml.safe_load(data.get("config") or "") or {}
        own = yaml.safe_load(data.get("workflowRestrictions") or "") or {}
    except yaml.YAMLError:
        return ""
    return str(at(own, "templateReferencing") or at(whole, "workflowRestrictions", "templateReferencing", default=""))


CHECKS = (
    ACCESS_DENIED,
    CLOCK_SKEW,
    ADMISSION_ABSENT,
    ADMISSION_LOOSE,
    WORKFLOWS_FREE,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    rights,
    clock,
    absent,
    loose,
    workflows,
)
