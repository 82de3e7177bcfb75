"""Who else than tidegate asked a Rollout for the version that it asks for. Pure."""

from __future__ import annotations

from rollouts.argo.model import Rollout, as_time
from rollouts.argo.owed import owns
from rollouts.cluster.revisions import labelled
from rollouts.kube.model import Json
from rollouts.kube.requests import MANAGER
from rollouts.manifests.conventions import VERSION
from rollouts.model import ForeignWish

TEMPLATE = ("f:spec", "f:template")
LABEL = (*TEMPLATE, "f:metadata", "f:labels", f"f:{VERSION}")


def foreign_wish(rollout: Json, stable: str) -> ForeignWish | None:
    """What somebody else asks for, as `metadata.managedFields` has it; None when it is tidegate's own wish.

    Whoever writes a version takes its label over, alone; one who applies the same shares it (Kubernetes, "Server-Side
    Apply"). `stable` is the version that serves.
    """
    entries = [each for each in rollout["metadata"].get("managedFields") or [] if owns(each, TEMPLATE)]
    others = [each for each in entries if each.get("manager") != MANAGER]
    ours = any(owns(each, LABEL) for each in entries if each not in others)
    if ours or not others:
        return None
    # Others may own parts of the template that are not at issue; a template without the label has no owner of it.
    claiming = [each for each in others if owns(each, LABEL)] or others
    # The time is optional; RFC 3339 in UTC sorts as text.
    youngest = max(claiming, key=lambda each: str(each.get("time") or ""))
    version, *_ = labelled(Rollout(rollout).spec.get("template") or {})
    at = as_time(youngest.get("time"))
    who = str(youngest.get("manager") or "an unnamed field manager") + (f" at {at:%H:%M:%S} UTC" if at else "")
    what = f"version {version}" if version else "a pod template without a version"
    again = " again" if version and version == stable else ""
    name = Rollout(rollout).name
    return ForeignWish(
        version=version, reason=f"somebody changed Rollout {name} during the trial: {who} asks for {what}{again}"
    )
