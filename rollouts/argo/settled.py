"""Whether an action had its effect, judged by the Rollout before it and the one read back.

A patch of the status moves no generation, so that `observedGeneration` says nothing about it: what the controller made
of it has to show in the fields that it writes.
"""

from __future__ import annotations

from datetime import datetime

from rollouts.argo.images import containers_of, with_image
from rollouts.argo.model import Rollout, as_time
from rollouts.argo.phase import pause_is_stale, says_aborted, waiting_for_controller
from rollouts.argo.revisions import templates_match
from rollouts.errors import NotPossible
from rollouts.kube.model import Json


def out_of_pause(before: Json, now: Json) -> bool:
    """After `promote` or `resume`: it moves again, or is in another pause than before.

    Raises:
        NotPossible: when it was aborted or replaced meanwhile.
    """
    was, seen = _same_trial(before, now)
    if waiting_for_controller(now) or seen.paused_by_spec:
        return False
    return seen.step_index != was.step_index or not seen.pause_conditions or _pauses(seen) != _pauses(was)


def resumed(_before: Json, now: Json) -> bool:
    """After `resume`: nobody holds it by hand; it may be in the pause of a step."""
    return not waiting_for_controller(now) and not Rollout(now).paused_by_spec


def held(_before: Json, now: Json) -> bool:
    """After `pause`."""
    return not waiting_for_controller(now) and Rollout(now).paused_by_spec


def at_step(before: Json, now: Json, index: int) -> bool:
    """After `to_step`: it is at the step, or has gone on from it.

    Raises:
        NotPossible: when it was aborted or replaced meanwhile.
    """
    was, seen = _same_trial(before, now)
    if waiting_for_controller(now) or pause_is_stale(seen):
        return False
    beyond = seen.step_index >= index
    return beyond and (index >= was.step_index or seen.step_index < was.step_index)


def past_all(before: Json, now: Json) -> bool:
    """After `promote_full`: no step and no pause holds it any more; its pods may still be coming up.

    Raises:
        NotPossible: when it was aborted or replaced meanwhile.
    """
    _, seen = _same_trial(before, now)
    if waiting_for_controller(now) or pause_is_stale(seen) or seen.paused_by_spec:
        return False
    return not seen.in_progress or (seen.step is None and not seen.pause_conditions)


def aborted(_before: Json, now: Json) -> bool:
    """After `abort`: the controller wrote when it aborted."""
    seen = Rollout(now)
    return seen.aborted and (bool(seen.status.get("abortedAt")) or says_aborted(seen))


def retried(before: Json, now: Json) -> bool:
    """After `retry`: it is on its way again, or was aborted once more."""
    was, seen = Rollout(before), Rollout(now)
    if seen.aborted:
        return seen.status.get("abortedAt") != was.status.get("abortedAt")
    return not says_aborted(seen)


def restarting(_before: Json, now: Json, at: datetime) -> bool:
    """After `restart`: the controller knows of it; pods follow one after the other."""
    wished = as_time(Rollout(now).spec.get("restartAt"))
    return not waiting_for_controller(now) and wished is not None and wished >= at.replace(microsecond=0)


def has_image(_before: Json, now: Json, container: str, image: str) -> bool:
    """After `set_image`: the template has it, and the controller knows the template."""
    if waiting_for_controller(now):
        return False
    return _elsewhere(now) or containers_of(with_image(now, container, image)) == containers_of(now)


def has_template(_before: Json, now: Json, template: Json) -> bool:
    """After `undo`: the template is that one, and the controller knows it."""
    if waiting_for_controller(now):
        return False
    return _elsewhere(now) or templates_match(now["spec"]["template"], template)


def _elsewhere(now: Json) -> bool:
    """Whether the template is a workload's, which is compared with what the controller saw of it."""
    return Rollout(now).workload_ref is not None


def _same_trial(before: Json, now: Json) -> tuple[Rollout, Rollout]:
    was, seen = Rollout(before), Rollout(now)
    if seen.pod_hash != was.pod_hash:
        raise NotPossible(f"{seen.name} was given another version meanwhile: {seen.pod_hash}, not {was.pod_hash}")
    if seen.aborted and not was.aborted:
        raise NotPossible(f"{seen.name} was aborted meanwhile", hint=f"see: tidegate rollout get {seen.name}")
    return was, seen


def _pauses(seen: Rollout) -> list[tuple[object, object]]:
    return [(condition.get("reason"), condition.get("startTime")) for condition in seen.pause_conditions]
