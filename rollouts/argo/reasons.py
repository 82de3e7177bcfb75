"""What is behind a phase, as far as the object tells: which analysis, which step, which pods."""

from __future__ import annotations

from rollouts.argo.model import PauseReason, Rollout
from rollouts.argo.phase import INVALID_SPEC, TIMED_OUT
from rollouts.argo.steps import step_text

UNDECIDED = {PauseReason.ANALYSIS, PauseReason.EXPERIMENT}


def undecided(seen: Rollout) -> bool:
    """Whether it is held because an analysis or an experiment could not decide."""
    return any(condition.get("reason") in UNDECIDED for condition in seen.pause_conditions)


def why_undecided(seen: Rollout) -> str:
    """The analysis runs that could not decide, with their messages."""
    return _told(seen, "Inconclusive")


def why_paused(seen: Rollout) -> str:
    """The step that holds it, or the hand."""
    return "spec.paused is set" if seen.paused_by_spec and not seen.pause_conditions else where(seen)


def why_degraded(seen: Rollout, message: str) -> str:
    """What failed: the spec, an analysis, or pods that did not come up."""
    kind = message.partition(":")[0]
    if kind == INVALID_SPEC:
        return "the controller refuses the spec: nothing happens until it is mended"
    if kind == TIMED_OUT:
        failures = [str(known.get("message")) for known in seen.conditions if known.get("type") == "ReplicaFailure"]
        available, updated = seen.status.get("availableReplicas") or 0, seen.status.get("updatedReplicas") or 0
        pods = f"{available} pods available, {updated} of {seen.replicas} updated, no progress for the whole deadline"
        return "; ".join([*failures, pods])
    return _told(seen, "Failed", "Error") or ("somebody aborted it" if seen.aborted else "")


def where(seen: Rollout) -> str:
    """The step that runs, counted from 1 as people do; empty when none does."""
    if seen.step is None or not seen.in_progress:
        return ""
    return f"step {seen.step_index + 1} of {len(seen.steps)}: {step_text(seen.step)}"


def _told(seen: Rollout, *phases: str) -> str:
    runs = [run for run in seen.analyses if run.phase in phases]
    return "; ".join(f"analysis run {run.run} ended {run.phase}: {run.message or 'no message'}" for run in runs)
