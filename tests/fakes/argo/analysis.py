"""Analysis runs of a Rollout: started, followed into pause or abort, cancelled, and ended as a test operations.

Upstream: `rollout/analysis.go`; `analysis/analysis.go` (`reconcileAnalysisRun`): a run that is terminated before it
measured anything is Successful, and here nothing is measured (`Simulation.analysis`). AnalysisRuns have no status
subresource (`manifests/crds/analysis-run-crd.yaml`).
"""

from __future__ import annotations

import copy

from fakes.argo.conditions import BLUE_GREEN, INCONCLUSIVE
from fakes.argo.objects import HASH_LABEL, REVISION, reference_to, stamp
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.world import World

from rollouts.kube.model import Resource
from rollouts.kube.resources import ANALYSIS_RUNS, ANALYSIS_TEMPLATES, CLUSTER_ANALYSIS_TEMPLATES
from tidegate.core.model import Json

STEP, BACKGROUND = ("canary", "currentStepAnalysisRunStatus"), ("canary", "currentBackgroundAnalysisRunStatus")
BEFORE, AFTER = ("blueGreen", "prePromotionAnalysisRunStatus"), ("blueGreen", "postPromotionAnalysisRunStatus")

_LABELS = {STEP: "Step", BACKGROUND: "Background", BEFORE: "PrePromotion", AFTER: "PostPromotion"}
"""`rollout-type`, the label by which a run says what it is for."""

ENDED = ("Successful", "Failed", "Error", "Inconclusive")


class Runs:
    """The runs of one reconciliation."""

    def __init__(self, r: Reconciliation) -> None:
        self._r = r
        self.all = r.world.index.owned(ANALYSIS_RUNS, r.rollout.body)

    def current(self, kind: tuple[str, str]) -> Json | None:
        """The one that the Rollout's status names."""
        said = self._r.rollout.status.get(kind[0], {}).get(kind[1])
        return next((run for run in self.all if said and run["metadata"]["name"] == said["name"]), None)

    def reconcile(self) -> None:
        """Nothing is measured of an abort, a full promotion, a version that is still warm, or a first deployment."""
        r = self._r
        kinds = (STEP, BACKGROUND) if r.rollout.canary is not None else (BEFORE, AFTER)
        if r.pauses.aborted or r.rollout.promoting_fully or r.warm or not r.rollout.stable_hash:
            kept = {kind: self.current(kind) for kind in kinds}
            self._cancel(self.all)
        else:
            kept = {kind: self._follow(kind) for kind in kinds}
            names = {run["metadata"]["name"] for run in kept.values() if run is not None}
            self._cancel([run for run in self.all if run["metadata"]["name"] not in names])
        for kind, run in kept.items():
            if run is not None:
                self._say(kind, run)

    def succeeded(self, kind: tuple[str, str]) -> bool:
        run = self.current(kind)
        return run is not None and phase_of(run) == "Successful"

    def _follow(self, kind: tuple[str, str]) -> Json | None:
        r, run = self._r, self.current(kind)
        if kind == STEP and (r.rollout.status.get("pauseConditions") or r.rollout.aborted):
            return run
        analysis = self._desired(kind)
        if analysis is None:
            if kind in (STEP, BACKGROUND) or run is None:
                return None
            self._cancel([run])
            return run
        if r.pauses.condition(INCONCLUSIVE) is not None:
            return run
        if self._needs_new(run):
            return self._start(kind, analysis)
        if run is not None and phase_of(run) == "Inconclusive":
            r.pauses.add(INCONCLUSIVE)
        elif run is not None and phase_of(run) in ("Failed", "Error"):
            r.pauses.abort(str((run.get("status") or {}).get("message", "")))
        return run

    def _needs_new(self, run: Json | None) -> bool:
        """None yet; or the last was inconclusive and somebody went on; or a retry after an abort."""
        status = self._r.rollout.status
        if run is None:
            return True
        if status.get("controllerPause") and self._r.pauses.condition(BLUE_GREEN) is None:
            return phase_of(run) == "Inconclusive"
        return "abortedAt" in status

    def _desired(self, kind: tuple[str, str]) -> Json | None:
        """What should be measured now, if anything."""
        r = self._r
        if kind == STEP:
            return (r.rollout.step or {}).get("analysis")
        if kind == BACKGROUND:
            analysis: Json | None = (r.rollout.canary or {}).get("analysis")
            index = r.rollout.step_index
            early = analysis is not None and index is not None and index < analysis.get("startingStep", 0)
            idle = r.rollout.fully_promoted or not r.rollout.current_hash
            return None if idle or early else analysis
        active = r.rollout.status.get("blueGreen", {}).get("activeSelector", "")
        desired: Json | None = r.rollout.strategy.get(
            "prePromotionAnalysis" if kind == BEFORE else "postPromotionAnalysis"
        )
        if r.new is None or r.rollout.stable_hash == r.new.hash or not self._saturated(kind):
            return None
        return desired if bool(active) and (active == r.new.hash) == (kind == AFTER) else None

    def _saturated(self, kind: tuple[str, str]) -> bool:
        r = self._r
        preview = r.rollout.strategy.get("previewReplicaCount") if kind == BEFORE else None
        count = r.rollout.replicas if preview is None else int(preview)
        return r.new is not None and r.new.replicas == r.new.available == count

    def _start(self, kind: tuple[str, str], analysis: Json) -> Json:
        r = self._r
        if r.new is None:
            raise ReconcileError("no replica set to analyse")
        infix = {STEP: f"-{r.rollout.step_index}", BACKGROUND: "", BEFORE: "-pre", AFTER: "-post"}[kind]
        base = name = f"{r.rollout.name}-{r.new.hash}-{r.rollout.revision}{infix}"
        taken, count = {run["metadata"]["name"] for run in self.all}, 0
        while name in taken:
            count += 1
            name = f"{base}.{count}"
        labels = {HASH_LABEL: r.new.hash, "rollout-type": _LABELS[kind], **r.rollout.selector.get("matchLabels", {})}
        if kind == STEP:
            labels["step-index"] = str(r.rollout.step_index)
        body: Json = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AnalysisRun",
            "metadata": {
                "name": name,
                "namespace": r.rollout.namespace,
                "labels": labels,
                "annotations": {REVISION: str(r.rollout.revision)},
                "ownerReferences": [reference_to(r.rollout.body)],
            },
            "spec": self._spec(analysis),
        }
        run = r.world.create(body)
        self.all.append(run)
        return run

    def _spec(self, analysis: Json) -> Json:
        """The templates' metrics together, and the arguments with what they refer to filled in."""
        templates = [self._template(reference) for reference in analysis.get("templates", ())]
        args = {arg["name"]: dict(arg) for template in templates for arg in template["spec"].get("args", ())}
        for arg in analysis.get("args", ()):
            args[arg["name"]] = {"name": arg["name"], "value": self._value(arg)}
        spec: Json = {"metrics": [metric for template in templates for metric in template["spec"].get("metrics", ())]}
        return spec | ({"args": list(args.values())} if args else {})

    def _value(self, arg: Json) -> str:
        source = arg.get("valueFrom") or {}
        if wanted := source.get("podTemplateHashValue"):
            rs = self._r.stable if wanted == "Stable" else self._r.new
            return rs.hash if rs is not None else ""
        return str(arg.get("value", ""))

    def _template(self, reference: Json) -> Json:
        name = str(reference["templateName"])
        kind: Resource = CLUSTER_ANALYSIS_TEMPLATES if reference.get("clusterScope") else ANALYSIS_TEMPLATES
        found = self._r.world.find(kind, name, self._r.rollout.namespace)
        if found is None:
            raise ReconcileError(f'{kind.kind.lower()} "{name}" not found')
        return found

    def _cancel(self, runs: list[Json]) -> None:
        for run in runs:
            if phase_of(run) not in ENDED and not run["spec"].get("terminate"):
                run["spec"]["terminate"] = True
                run.update(self._r.world.update(run))

    def _say(self, kind: tuple[str, str], run: Json) -> None:
        """Into the Rollout's status."""
        status = {"name": run["metadata"]["name"], "status": phase_of(run)}
        if message := (run.get("status") or {}).get("message"):
            status["message"] = message
        self._r.status.setdefault(kind[0], {})[kind[1]] = status


def phase_of(run: Json) -> str:
    return str((run.get("status") or {}).get("phase", ""))


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
