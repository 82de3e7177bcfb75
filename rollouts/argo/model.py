"""A Rollout as the Kubernetes API gives it, read as Argo Rollouts reads it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rollouts.kube.model import Json

POD_TEMPLATE_HASH = "rollouts-pod-template-hash"
"""The label by which Argo Rollouts tells the pods and ReplicaSets of one template from another's."""

REVISION = "rollout.argoproj.io/revision"
"""The annotation that numbers a ReplicaSet, an AnalysisRun or an Experiment among those of its Rollout."""


class PauseReason(StrEnum):
    """Why the controller holds a rollout (`PauseReason` in types.go)."""

    STEP = "CanaryPauseStep"
    BLUE_GREEN = "BlueGreenPause"
    ANALYSIS = "InconclusiveAnalysisRun"
    EXPERIMENT = "InconclusiveExperiment"


@dataclass(frozen=True)
class AnalysisStatus:
    """What a Rollout's status says of one of its analysis runs."""

    run: str
    phase: str
    """Pending, Running, Successful, Failed, Error or Inconclusive."""
    message: str

    @property
    def completed(self) -> bool:
        """As `AnalysisPhase.Completed`."""
        return self.phase in {"Successful", "Failed", "Error", "Inconclusive"}


@dataclass(frozen=True)
class Rollout:
    """Reads one object; what is missing in it has the value that Go's zero values and the controller give it."""

    object: Json

    @property
    def metadata(self) -> Json:
        return self.object.get("metadata") or {}

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def resource_version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def generation(self) -> int:
        """Moves with every change of `spec`, and with nothing else."""
        return int(self.metadata.get("generation") or 0)

    @property
    def spec(self) -> Json:
        return self.object.get("spec") or {}

    @property
    def status(self) -> Json:
        return self.object.get("status") or {}

    @property
    def canary(self) -> Json | None:
        """The canary strategy; None where another one is chosen."""
        found: Json | None = (self.spec.get("strategy") or {}).get("canary")
        return found

    @property
    def blue_green(self) -> Json | None:
        """The blue-green strategy; None where another one is chosen."""
        found: Json | None = (self.spec.get("strategy") or {}).get("blueGreen")
        return found

    @property
    def steps(self) -> list[Json]:
        return (self.canary or {}).get("steps") or []

    @property
    def step_index(self) -> int:
        """The step it is at; as many as there are steps when all are done (`GetCurrentCanaryStep`)."""
        return int(self.status.get("currentStepIndex") or 0)

    @property
    def step(self) -> Json | None:
        """The step that runs now; None when there are no steps or all are done."""
        return self.steps[self.step_index] if self.step_index < len(self.steps) else None

    @property
    def set_weight(self) -> int:
        """The weight that its steps ask for now (`GetCurrentSetWeight`); what users see may be another."""
        if self.status.get("abort"):
            return 0
        if self.step is None:
            return 100
        weights = [step["setWeight"] for step in self.steps[: self.step_index + 1] if step.get("setWeight") is not None]
        return int(weights[-1]) if weights else 0

    @property
    def replicas(self) -> int:
        """The pods that are asked for; 1 when the spec does not say (`GetReplicasOrDefault`)."""
        asked = self.spec.get("replicas")
        return 1 if asked is None else int(asked)

    @property
    def pod_hash(self) -> str:
        """The template that the spec asks for, as the controller last saw it."""
        return str(self.status.get("currentPodHash") or "")

    @property
    def stable_hash(self) -> str:
        """The template that was last promoted in full; empty before the first one was."""
        return str(self.status.get("stableRS") or "")

    @property
    def active_hash(self) -> str:
        """Blue-green: the template that users are on; empty elsewhere."""
        return str((self.status.get("blueGreen") or {}).get("activeSelector") or "")

    @property
    def in_progress(self) -> bool:
        """Whether a version is on its way to replace the stable one (not `IsFullyPromoted`)."""
        return self.pod_hash != self.stable_hash

    @property
    def paused_by_spec(self) -> bool:
        """Somebody set `spec.paused`."""
        return bool(self.spec.get("paused"))

    @property
    def pause_conditions(self) -> list[Json]:
        return self.status.get("pauseConditions") or []

    @property
    def controller_pause(self) -> bool:
        """The controller added a pause condition, and has not seen it removed yet."""
        return bool(self.status.get("controllerPause"))

    @property
    def aborted(self) -> bool:
        return bool(self.status.get("abort"))

    @property
    def promoting_in_full(self) -> bool:
        return bool(self.status.get("promoteFull"))

    @property
    def conditions(self) -> list[Json]:
        return self.status.get("conditions") or []

    @property
    def workload_ref(self) -> Json | None:
        """The Deployment, ReplicaSet or PodTemplate that holds the pod template instead of the Rollout itself."""
        found: Json | None = self.spec.get("workloadRef")
        return found

    @property
    def analyses(self) -> list[AnalysisStatus]:
        """The analysis runs that can stop it now: of the step and background, or before and after the switch."""
        canary, blue_green = self.status.get("canary") or {}, self.status.get("blueGreen") or {}
        found = (
            canary.get("currentStepAnalysisRunStatus"),
            canary.get("currentBackgroundAnalysisRunStatus"),
            blue_green.get("prePromotionAnalysisRunStatus"),
            blue_green.get("postPromotionAnalysisRunStatus"),
        )
        return [
            AnalysisStatus(str(run.get("name", "")), str(run.get("status", "")), str(run.get("message") or ""))
            for run in found
            if run
        ]


def as_time(text: str | None) -> datetime | None:
    """A Kubernetes time (RFC 3339) as a moment; None when there is none."""
    return datetime.fromisoformat(text) if text else None


def revision_of(thing: Json) -> int:
    """The revision that a ReplicaSet, AnalysisRun or Experiment belongs to; 0 when it does not say."""
    text = str(((thing.get("metadata") or {}).get("annotations") or {}).get(REVISION, ""))
    return int(text) if text.isdecimal() else 0
