"""What somebody else than tidegate asks a Rollout for: another version, or another engine under the same version. Pure.

`metadata.managedFields` says who wrote a version's label. Who changes a pod template below that label, such as an
upgrade of a Helm release that sends its image alone, leaves the label with us: that is seen by the ReplicaSet which
comes of it, since no two of ours have the same version and attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rollouts.argo.model import Rollout, parse_time
from rollouts.cluster.model import Revision, version_labels
from rollouts.kube.model import MANAGER
from rollouts.kube.objects import owns_field
from rollouts.model import ForeignChange
from tidegate.core.model import Json
from tidegate.core.names import VERSION

_TEMPLATE = ("f:spec", "f:template")
_VERSION_LABEL = (*_TEMPLATE, "f:metadata", "f:labels", f"f:{VERSION}")


def foreign_version(rollout: Json, stable: str) -> ForeignChange | None:
    """What somebody else asks for, as `metadata.managedFields` has it; None when it is tidegate's own operation.

    Anyone who writes a version takes its label over, alone; one who applies the same shares it (Kubernetes,
    "Server-Side Apply"). `stable` is the version that serves.
    """
    entries = _template_entries(rollout)
    others = [each for each in entries if each.get("manager") != MANAGER]
    ours = any(owns_field(each, _VERSION_LABEL) for each in entries if each not in others)
    if ours or not others:
        return None
    # Others may own parts of the template that are not at issue; a template without the label has no owner of it.
    claiming = [each for each in others if owns_field(each, _VERSION_LABEL)] or others
    version = _asked(rollout)
    what = f"version {version}" if version else "a pod template without a version"
    again = " again" if version and version == stable else ""
    return _change(rollout, version, f"{_last(claiming)} asks for {what}{again}")


def foreign_template(rollout: Json, revisions: Iterable[Revision]) -> ForeignChange | None:
    """That the pod template of the version that is asked for was changed; None when it is as tidegate wrote it.

    The controller has seen the Rollout. `revisions` are all that the region remembers.
    """
    known = list(revisions)
    current = next((each for each in known if each.hash == Rollout(rollout).pod_hash), None)
    if current is None or not current.version or current.created is None:
        return None
    same = (current.version, current.attempt)
    if not any(
        (each.version, each.attempt) == same and each.created is not None and each.created < current.created
        for each in known
    ):
        return None
    others = [each for each in _template_entries(rollout) if each.get("manager") != MANAGER]
    return _change(rollout, "", f"{_last(others)} asks for another pod template of version {current.version}")


def _template_entries(rollout: Json) -> list[Json]:
    return [each for each in rollout["metadata"].get("managedFields") or [] if owns_field(each, _TEMPLATE)]


def _asked(rollout: Json) -> str:
    version, *_ = version_labels(Rollout(rollout).spec.get("template") or {})
    return version


def _last(entries: Sequence[Json]) -> str:
    """The youngest of these writers, and when it wrote."""
    # The time is optional; RFC 3339 in UTC sorts as text.
    youngest = max(entries, key=lambda each: str(each.get("time") or ""), default={})
    at = parse_time(youngest.get("time"))
    return str(youngest.get("manager") or "an unnamed field manager") + (f" at {at:%H:%M:%S} UTC" if at else "")


def _change(rollout: Json, version: str, what: str) -> ForeignChange:
    name = Rollout(rollout).name
    return ForeignChange(version=version, reason=f"somebody changed Rollout {name}: {what}")
