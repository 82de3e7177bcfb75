"""The plugin's actions as compare-and-set: refused where they would harm, void where they would change nothing.

Every request carries the `resourceVersion` of the object that was decided on, so that the API server answers 409 when
anything happened in between. The caller then reads and decides again, with the same `Precondition`: two who
promote at once move the rollout by one step, not by two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rollouts.argo import patches
from rollouts.argo.model import Rollout, replica_set_with_hash, target_revision
from rollouts.argo.patches import Requests, next_step, patch_status, require_step
from rollouts.argo.state import has_aborted_condition
from rollouts.argo.templates import containers_of, original_template, with_image
from rollouts.errors import NotPossible
from rollouts.kube.model import PatchKind, Request
from rollouts.kube.requests import STRICT
from tidegate.core.model import Json, Value


class Precondition(Value):
    """The state that an action assumes; a field that is None may be anything."""

    pod_hash: str | None = None
    """`status.currentPodHash`: the version that is on its way, or the stable one when none is."""
    step: int | None = None
    """`status.currentStepIndex`."""

    @classmethod
    def of(cls, rollout: Json) -> Precondition:
        """Where this object is."""
        ro = Rollout(rollout)
        return cls(pod_hash=ro.pod_hash, step=ro.step_index)


ANY_STATE = Precondition()


def promote(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Out of its pause, to whatever comes next; an undecided analysis counts as passed.

    What only `spec.paused` holds goes on where it was, and keeps its step (the plugin's `promote` skips it).

    Raises:
        NotPossible: when it is elsewhere, aborted, or not paused: then the plugin would skip what runs now.
    """
    ro = _at(rollout, expected)
    _refuse_aborted(ro, "promote")
    if ro.pause_conditions:
        return with_resource_version(_spec_first(patches.promote(rollout)), ro.resource_version)
    if ro.paused_by_spec:
        return with_resource_version(patches.resume(rollout), ro.resource_version)
    if ro.controller_pause:
        return ()  # somebody took the pause away, and the controller has not seen it yet
    _require_progress(ro, "promote")
    raise NotPossible(
        f"{ro.name} is not paused: promoting it now would skip what runs at {_place(ro)}",
        hint="wait for a pause, or force it: --skip-step or --full",
    )


def promote_full(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Past all steps, pauses and analyses; nothing when that was said already, or when it is the stable version.

    Raises:
        NotPossible: when it is elsewhere, or aborted: the controller would take the abort back.
    """
    ro = _at(rollout, expected)
    _refuse_aborted(ro, "promote")
    if ro.promoting_in_full and not ro.paused_by_spec:
        return ()
    return with_resource_version(_spec_first(patches.promote_full(rollout)), ro.resource_version)


def skip_step(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Past the running step, a pause or an analysis.

    Raises:
        NotPossible: when it is elsewhere, or has no running step.
    """
    ro = Rollout(rollout)
    if ro.steps and ro.step is None:
        raise NotPossible(f"{ro.name} is past its last step", hint=f"see: tidegate rollout status {ro.name}")
    return to_step(rollout, next_step(ro), expected)


def to_step(rollout: Json, index: int, expected: Precondition = ANY_STATE) -> Requests:
    """To the step with this index, up or down; nothing when it is there.

    Takes its pause away together with the controller's memory of it: else a pause at the new step would count as one
    that somebody ended (`CompletedCanaryPauseStep`), and users would move on at once.

    Raises:
        NotPossible: when it is elsewhere, has no such step, or nothing is in progress.
    """
    ro = _at(rollout, expected)
    require_step(ro, index)
    _require_progress(ro, "move")
    _refuse_aborted(ro, "move")
    if ro.promoting_in_full:
        raise NotPossible(
            f"{ro.name} is being promoted in full: its steps do not count any more",
            hint=f"wait for it: tidegate rollout status {ro.name}",
        )
    if ro.step_index == index:
        return ()
    status = {"pauseConditions": None, "controllerPause": False, "currentStepIndex": index}
    return with_resource_version((patch_status(ro, status),), ro.resource_version)


def abort(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """All users back to the stable version; nothing when it was aborted already.

    Raises:
        NotPossible: when it is elsewhere, or nothing is in progress: then there is nothing to go back to, and
            controllers before 1.0 scaled the stable version to 0 (argo-rollouts#1292).
    """
    ro = _at(rollout, expected)
    if ro.aborted:
        return ()
    if not ro.stable_hash:
        raise NotPossible(
            f"{ro.name} was never promoted: there is no stable version to go back to",
            hint="wait for its first version, or delete the Rollout",
        )
    _require_progress(ro, "abort")
    if ro.promoting_in_full:
        # A controller that promotes in full forgets an abort (`rollout/canary.go`, `syncRolloutStatusCanary`).
        return with_resource_version((patch_status(ro, {"abort": True, "promoteFull": False}),), ro.resource_version)
    return with_resource_version(patches.abort(rollout), ro.resource_version)


def retry(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """The aborted version again, from its first step.

    Raises:
        NotPossible: when it is elsewhere, or was not aborted.
    """
    ro = _at(rollout, expected)
    if not ro.aborted and has_aborted_condition(ro):
        return ()  # somebody said so, and the controller has not seen it yet
    if not ro.aborted:
        raise NotPossible(
            f"{ro.name} was not aborted: there is nothing to retry", hint=f"see: tidegate rollout status {ro.name}"
        )
    return with_resource_version(patches.retry(rollout), ro.resource_version)


def pause(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Hold everything; nothing when somebody did already."""
    ro = _at(rollout, expected)
    return () if ro.paused_by_spec else with_resource_version(patches.pause(rollout), ro.resource_version)


def resume(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Let go what `pause` holds; the pauses of steps stay."""
    ro = _at(rollout, expected)
    return with_resource_version(patches.resume(rollout), ro.resource_version) if ro.paused_by_spec else ()


def restart(rollout: Json, at: datetime, expected: Precondition = ANY_STATE) -> Requests:
    """New pods for those that are older than `at`."""
    ro = _at(rollout, expected)
    return with_resource_version(patches.restart(rollout, at), ro.resource_version)


def undo(
    rollout: Json,
    replica_sets: Sequence[Json],
    revision: int = 0,
    expected: Precondition = ANY_STATE,
    *,
    workload: Json | None = None,
) -> Requests:
    """The pod template of an earlier revision, as `template_of` chooses it.

    Raises:
        NotPossible: when it is elsewhere, or there is no such revision.
    """
    return restore(rollout, template_of(rollout, replica_sets, revision), expected, workload=workload)


def template_of(rollout: Json, replica_sets: Sequence[Json], revision: int = 0) -> Json:
    """The pod template of a revision; 0 is the stable one while another is on its way, else the one before.

    The plugin's 0 is the second-highest revision even when that one never was promoted.

    Raises:
        NotPossible: when there is no such revision.
    """
    ro = Rollout(rollout)
    if revision or not (ro.in_progress and ro.stable_hash):
        return original_template(target_revision(rollout, replica_sets, revision))
    stable = replica_set_with_hash(rollout, replica_sets, ro.stable_hash)
    if stable is None:
        raise NotPossible(f"the stable ReplicaSet of {ro.name} is gone", hint="choose one: --to-revision N")
    return original_template(stable)


def restore(
    rollout: Json, template: Json, expected: Precondition = ANY_STATE, *, workload: Json | None = None
) -> Requests:
    """A pod template that was there before; nothing when it is there still.

    Raises:
        NotPossible: when it is elsewhere.
    """
    _at(rollout, expected)
    requests = patches.restore(rollout, template, workload=workload)
    return with_resource_version(requests, Rollout(workload or rollout).resource_version)


def set_image(
    rollout: Json, container: str, image: str, expected: Precondition = ANY_STATE, *, workload: Json | None = None
) -> Requests:
    """Another image for every container of that name; nothing when they have it.

    Raises:
        NotPossible: when it is elsewhere, no container has that name, or the template is not a Deployment's: the
            plugin writes to a Deployment of that name, whatever `spec.workloadRef` says.
    """
    ro = _at(rollout, expected)
    ref = ro.workload_ref or {}
    if ref and ref.get("kind") != "Deployment":
        raise NotPossible(
            f"{ro.name} has its template from {ref.get('kind')} {ref.get('name')}", hint="change it there"
        )
    requests = patches.set_image(rollout, container, image, workload=workload)
    holder = workload if ref and workload else rollout
    same = containers_of(with_image(holder, container, image)) == containers_of(holder)
    return () if same else with_resource_version(requests, Rollout(holder).resource_version)


def with_resource_version(requests: Requests, resource_version: str) -> Requests:
    """The same requests with our field manager, valid only while the object has this resource version."""
    return tuple(
        request.model_copy(update={"body": _held(request, resource_version), "query": STRICT}) for request in requests
    )


def _held(request: Request, resource_version: str) -> Json | list[Any] | None:
    if request.method == "PUT":
        return request.body  # has it, as it was read
    if isinstance(request.body, dict):
        metadata = {**request.body.get("metadata", {}), "resourceVersion": resource_version}
        return {"metadata": metadata, **{key: value for key, value in request.body.items() if key != "metadata"}}
    if request.patch is PatchKind.JSON and request.body is not None:
        # `replace` and not `test`: a failed test is a 422, and a resource version that is not the newest a 409.
        lock = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
        return [lock, *(item for item in request.body if item.get("path") != lock["path"])]
    return request.body


def _spec_first(requests: Requests) -> Requests:
    """The plugin patches the status first; a controller that still sees `spec.paused` may then pause the step again."""
    return tuple(sorted(requests, key=lambda request: request.subresource == "status"))


def _at(rollout: Json, expected: Precondition) -> Rollout:
    ro = Rollout(rollout)
    if expected.pod_hash is not None and expected.pod_hash != ro.pod_hash:
        raise NotPossible(
            f"{ro.name} moved on: its version is {ro.pod_hash or 'none'}, and {expected.pod_hash} was meant",
            hint="the Rollout changed meanwhile: check its status and retry",
        )
    if expected.step is not None and expected.step != ro.step_index:
        raise NotPossible(
            f"{ro.name} moved on: it is at step {ro.step_index}, and {expected.step} was meant",
            hint="the Rollout changed meanwhile: check its status and retry",
        )
    return ro


def _require_progress(ro: Rollout, verb: str) -> None:
    if not ro.in_progress:
        raise NotPossible(
            f"nothing is in progress in {ro.name}: there is nothing to {verb}",
            hint=f"see: tidegate rollout status {ro.name}",
        )


def _refuse_aborted(ro: Rollout, verb: str) -> None:
    if ro.aborted:
        raise NotPossible(f"{ro.name} was aborted: there is nothing to {verb}", hint="retry it, or undo it")


def _place(ro: Rollout) -> str:
    return f"step {ro.step_index} of {len(ro.steps)}" if ro.steps else "its switch"
