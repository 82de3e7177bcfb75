"""What a changed template does to the status, and which way back is short.

Upstream: `rollout/sync.go` (`resetRolloutStatus`, `isRollbackWithinWindow`).
"""

from __future__ import annotations

from fakes.argo.reconciliation import Reconciliation

from rollouts.kube.model import Json


def reset(r: Reconciliation, status: Json) -> None:
    """A new update begins: no pause, no abort, no full promotion, no analysis, step 0, restarted already."""
    r.pauses.clear()
    r.pauses.unabort()
    status.pop("promoteFull", None)
    if "restartAt" in r.rollout.spec:
        status["restartedAt"] = r.rollout.spec["restartAt"]
    for part in ("canary", "blueGreen"):
        for key in [key for key in status.get(part, {}) if key.endswith("AnalysisRunStatus")]:
            del status[part][key]
    status.get("blueGreen", {}).pop("scaleUpPreviewCheckPoint", None)
    status.pop("currentStepIndex", None)
    if r.rollout.steps:
        status["currentStepIndex"] = 0


def within_window(r: Reconciliation) -> bool:
    """The wished version is older than the stable, with fewer than `rollbackWindow.revisions` between them.

    Age is when the replica set was made: a version that came back once is as old as ever.
    """
    revisions = (r.rollout.spec.get("rollbackWindow") or {}).get("revisions", 0)
    if r.new is None or r.stable is None or not revisions or r.new.created >= r.stable.created:
        return False
    return sum(r.new.created < rs.created < r.stable.created for rs in r.all) < int(revisions)
