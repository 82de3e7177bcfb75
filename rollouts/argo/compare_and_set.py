"""What a delivery does to a Rollout, as compare-and-set: refused where it would harm, void where it changes nothing.

The bodies are those of kubectl's Argo Rollouts plugin; file names are those below `pkg/kubectl-argo-rollouts/cmd/` of
argo-rollouts. Every request carries the `resourceVersion` of the object that was decided on, so that the API server
answers 409 when anything happened in between. The caller then reads and decides again, with the same `Precondition`:
two who move a rollout at once move it by one step, not by two. Pure.

Rollouts before 0.10 had no status subresource. Nothing here is for them: a patch of `status` on the object itself is
dropped without a word by every later version, so a 404 is told as what it is, a rollout that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rollouts.argo.model import Rollout, replica_set_of
from rollouts.argo.templates import original_template, templates_match
from rollouts.errors import NotPossible
from rollouts.kube.model import STRICT, PatchKind, Request, Resource
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.model import Json, Value

Requests = tuple[Request, ...]
"""In the order in which they are sent; none when all is as desired."""


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


def promote_full(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Past all steps, pauses and analyses; nothing when that was said already, or when it is the stable version.

    Raises:
        NotPossible: when it is elsewhere, or aborted: the controller would take the abort back.
    """
    ro = _at(rollout, expected)
    _refuse_aborted(ro, "promote")
    if ro.promoting_in_full and not ro.paused_by_spec:
        return ()
    # The plugin patches the status first; a controller that still sees `spec.paused` may then pause the step again.
    return (*resume(rollout), *([_patch_status(ro, {"promoteFull": True})] if ro.in_progress else []))


def to_step(rollout: Json, index: int, expected: Precondition = ANY_STATE) -> Requests:
    """To the step with this index, up or down; nothing when it is there.

    Takes its pause away together with the controller's memory of it: else a pause at the new step would count as one
    that somebody ended (`CompletedCanaryPauseStep`), and users would move on at once.

    Raises:
        NotPossible: when it is elsewhere, has no such step, or nothing is in progress.
    """
    ro = _at(rollout, expected)
    if not ro.steps:
        raise NotPossible(f"{ro.name} has no steps to skip", hint="promote it without a step")
    if not 0 <= index <= len(ro.steps):
        raise NotPossible(f"{ro.name} has no step {index}", hint=f"0 to {len(ro.steps)}, the last for past all")
    _require_progress(ro, "move")
    _refuse_aborted(ro, "move")
    if ro.promoting_in_full:
        raise NotPossible(
            f"{ro.name} is being promoted in full: its steps do not count any more",
            hint=f"wait for it: kubectl argo rollouts status {ro.name}",
        )
    if ro.step_index == index:
        return ()
    return (_patch_status(ro, {"pauseConditions": None, "controllerPause": False, "currentStepIndex": index}),)


def abort(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """All users back to the stable version (`abort/abort.go`); nothing when it was aborted already.

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
    # A controller that promotes in full forgets an abort (`rollout/canary.go`, `syncRolloutStatusCanary`).
    forgets = {"promoteFull": False} if ro.promoting_in_full else {}
    return (_patch_status(ro, {"abort": True, **forgets}),)


def resume(rollout: Json, expected: Precondition = ANY_STATE) -> Requests:
    """Let go what a person holds by `spec.paused`; the pauses of steps stay."""
    ro = _at(rollout, expected)
    return (_patch(ro, {"spec": {"paused": False}}, PatchKind.MERGE),) if ro.paused_by_spec else ()


def undo(rollout: Json, replica_sets: Sequence[Json], revision: int, expected: Precondition = ANY_STATE) -> Requests:
    """The pod template of an earlier revision, as `undo/undo.go` sends it; nothing when it is there still.

    Raises:
        NotPossible: when it is elsewhere, or there is no such revision.
    """
    ro = _at(rollout, expected)
    template = original_template(replica_set_of(rollout, replica_sets, revision))
    if templates_match(rollout["spec"]["template"], template):
        return ()
    operation = {"op": "replace", "path": "/spec/template", "value": template}
    return (_patch(ro, [operation], PatchKind.JSON),)


def change(resource: Resource, live: Json, operations: Sequence[Json]) -> Requests:
    """These operations of a JSON patch on a Rollout or its workload; nothing when there are none."""
    return (_patch(Rollout(live), list(operations), PatchKind.JSON, resource=resource),) if operations else ()


def with_resource_version(requests: Requests, resource_version: str) -> Requests:
    """The same requests, valid only while the object has this resource version."""
    return tuple(replace(request, body=_held(request.body, resource_version)) for request in requests)


def _patch_status(ro: Rollout, status: Json) -> Request:
    return _patch(ro, {"status": status}, PatchKind.MERGE, subresource="status")


def _patch(
    ro: Rollout, body: Json | list[Any], kind: PatchKind, *, subresource: str = "", resource: Resource = ROLLOUTS
) -> Request:
    held, namespace = _held(body, ro.resource_version), ro.metadata.get("namespace")
    return Request("PATCH", resource, ro.name, namespace, subresource, patch=kind, body=held, query=STRICT)


def _held(body: Json | list[Any] | None, resource_version: str) -> Json | list[Any] | None:
    if isinstance(body, dict):
        metadata = {**body.get("metadata", {}), "resourceVersion": resource_version}
        return {"metadata": metadata, **{key: value for key, value in body.items() if key != "metadata"}}
    # `replace` and not `test`: a failed test is a 422, and a resource version that is not the newest a 409.
    lock = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}
    return [lock, *(item for item in body or [] if item.get("path") != lock["path"])]


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
            hint=f"see: kubectl argo rollouts get rollout {ro.name}",
        )


def _refuse_aborted(ro: Rollout, verb: str) -> None:
    if ro.aborted:
        raise NotPossible(f"{ro.name} was aborted: there is nothing to {verb}", hint="retry it, or undo it")
