"""The background analysis of a canary: started, followed into an abort, cancelled, and ended as a test says.

Upstream: `rollout/analysis.go`; `analysis/analysis.go` (`reconcileAnalysisRun`): a run that is terminated before it
measured anything is Successful, and here nothing is measured (`Simulation.analysis`). AnalysisRuns have no status
subresource (`manifests/crds/analysis-run-crd.yaml`).
"""

from __future__ import annotations

import copy

from fakes.argo.objects import HASH_LABEL, REVISION, reference_to, stamp
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.world import World

from rollouts.kube.resources import ANALYSIS_RUNS, ANALYSIS_TEMPLATES
from tidegate.core.model import Json

STATUS = "currentBackgroundAnalysisRunStatus"
ENDED = ("Successful", "Failed", "Error")


def follow_background(r: Reconciliation) -> None:
    """Nothing is measured of an abort, a full promotion, a version that is still warm, or a first deployment."""
    runs = r.world.owned(ANALYSIS_RUNS, r.rollout.body)
    said = r.rollout.status.get("canary", {}).get(STATUS)
    run = next((one for one in runs if said and one["metadata"]["name"] == said["name"]), None)
    over = r.pauses.aborted or r.rollout.promoting_fully or r.warm or not r.rollout.stable_hash
    if not over:
        run = _followed(r, run, {one["metadata"]["name"] for one in runs})
    for one in runs:
        if over or run is None or one["metadata"]["name"] != run["metadata"]["name"]:
            _cancel(r, one)
    if run is not None:
        status = {"name": run["metadata"]["name"], "status": phase_of(run)}
        if message := (run.get("status") or {}).get("message"):
            status["message"] = message
        r.status["canary"][STATUS] = status


def _followed(r: Reconciliation, run: Json | None, taken: set[str]) -> Json | None:
    """The run of now: a new one where there is none yet, or after an abort."""
    analysis: Json | None = (r.rollout.canary or {}).get("analysis")
    index = r.rollout.step_index
    if analysis is None or r.rollout.fully_promoted or not r.rollout.current_hash:
        return None
    if index is not None and index < analysis.get("startingStep", 0):
        return None
    if run is None or "abortedAt" in r.rollout.status:
        return _start(r, analysis, taken)
    if phase_of(run) in ("Failed", "Error"):
        r.pauses.abort(str((run.get("status") or {}).get("message", "")))
    return run


def _start(r: Reconciliation, analysis: Json, taken: set[str]) -> Json:
    """With the templates' metrics together; arguments are left out, since nothing is measured."""
    if r.new is None:
        raise ReconcileError("no replica set to analyse")
    base = name = f"{r.rollout.name}-{r.new.hash}-{r.rollout.revision}"
    count = 0
    while name in taken:
        count += 1
        name = f"{base}.{count}"
    labels = {HASH_LABEL: r.new.hash, "rollout-type": "Background", **r.rollout.selector.get("matchLabels", {})}
    templates = [_template(r, reference) for reference in analysis.get("templates", ())]
    return r.world.create(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AnalysisRun",
            "metadata": {
                "name": name,
                "namespace": r.rollout.namespace,
                "labels": labels,
                "annotations": {REVISION: str(r.rollout.revision)},
                "ownerReferences": [reference_to(r.rollout.body)],
            },
            "spec": {"metrics": [metric for template in templates for metric in template["spec"].get("metrics", ())]},
        }
    )


def _template(r: Reconciliation, reference: Json) -> Json:
    name = str(reference["templateName"])
    found = r.world.find(ANALYSIS_TEMPLATES, name, r.rollout.namespace)
    if found is None:
        raise ReconcileError(f'analysistemplate "{name}" not found')
    return found


def _cancel(r: Reconciliation, run: Json) -> None:
    if phase_of(run) not in ENDED and not run["spec"].get("terminate"):
        run["spec"]["terminate"] = True
        run.update(r.world.update(run))


def phase_of(run: Json) -> str:
    return str((run.get("status") or {}).get("phase", ""))


def reconcile_run(world: World, run: Json, phase: str) -> None:
    """Give a run that has not ended its phase, and each of its metrics the same."""
    if phase_of(run) in ENDED:
        return
    if run["spec"].get("terminate"):
        phase = "Successful"
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
    if phase in ENDED:
        status["completedAt"] = now
    world.update(run | {"status": status})
