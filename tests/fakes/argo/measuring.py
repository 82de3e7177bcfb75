"""The analysis controller without measurements: every run gets the phase that a test wishes.

Upstream: `analysis/analysis.go` (`reconcileAnalysisRun`): a run that is terminated before it measured anything is
Successful. AnalysisRuns have no status subresource (`manifests/crds/analysis-run-crd.yaml`).
"""

from __future__ import annotations

import copy

from fakes.argo.analysis import ENDED, phase_of
from fakes.argo.objects import stamp
from fakes.argo.world import World

from rollouts.kube.model import Json


def reconcile_run(world: World, run: Json, phase: str, message: str) -> None:
    """Give a run that has not ended its phase, and each of its metrics the same."""
    if phase_of(run) in ENDED:
        return
    if run["spec"].get("terminate"):
        phase, message = "Successful", "Run Terminated"
    now = stamp(world.now())
    status: Json = copy.deepcopy(run.get("status") or {})
    status |= {"phase": phase, "startedAt": status.get("startedAt", now)}
    measured = phase in ENDED and not run["spec"].get("terminate")
    measurement = {"phase": phase, "startedAt": now, "finishedAt": now}
    status["metricResults"] = [
        {"name": metric["name"], "phase": phase}
        | ({"count": 1, phase.lower(): 1, "measurements": [measurement]} if measured else {})
        for metric in run["spec"].get("metrics", ())
    ]
    if message:
        status["message"] = message
    if phase in ENDED:
        status["completedAt"] = now
    world.update(run | {"status": status})
