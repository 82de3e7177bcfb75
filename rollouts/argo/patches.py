"""The requests of kubectl's Argo Rollouts plugin, action by action: the same bodies, the same subresources, no more.

Pure: from the object as it was read to what would be sent. What the plugin sends without looking is in here without a
look too; `rollouts.argo.compare_and_set` refuses what must not be sent and adds the `resourceVersion`. File names
in docstrings are those below `pkg/kubectl-argo-rollouts/cmd/` of argo-rollouts.

Rollouts before 0.10 had no status subresource. Nothing here is for them: a patch of `status` on the object itself is
dropped without a word by every later version, so a 404 is told as what it is, a rollout that does not exist.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rollouts.argo.model import Rollout
from rollouts.argo.templates import templates_match, with_image
from rollouts.errors import NotPossible
from rollouts.kube.model import PatchKind, Request
from rollouts.kube.resources import ROLLOUTS, resource_of
from tidegate.core.model import Json

Requests = tuple[Request, ...]
"""In the order in which they are sent; none when all is as desired."""


def promote(rollout: Json) -> Requests:
    """On to the next step, or out of a pause (`promote/promote.go`, `getPatches`).

    A rollout that is not paused loses its running step, an analysis included.
    """
    ro = Rollout(rollout)
    status: Json | None = None
    if _inconclusive(ro) and ro.pause_conditions and ro.controller_pause:
        # Without controllerPause a pause step that follows would count as ended already.
        if ro.steps:
            status = {"pauseConditions": None, "controllerPause": False, "currentStepIndex": next_step(ro)}
    elif ro.pause_conditions:
        status = {"pauseConditions": None}
    elif ro.steps:
        status = {"pauseConditions": None, "currentStepIndex": next_step(ro)}
    sent = [patch_status(ro, status)] if status else []
    return (*sent, *(resume(rollout) if ro.paused_by_spec else ()))


def promote_full(rollout: Json) -> Requests:
    """Past all steps, pauses and analyses; nothing when the version is the stable one (`promote/promote.go`)."""
    ro = Rollout(rollout)
    sent = [patch_status(ro, {"promoteFull": True})] if ro.in_progress else []
    return (*sent, *(resume(rollout) if ro.paused_by_spec else ()))


def abort(rollout: Json) -> Requests:
    """All users back to the stable version, whatever is going on (`abort/abort.go`)."""
    return (patch_status(Rollout(rollout), {"abort": True}),)


def retry(rollout: Json) -> Requests:
    """The aborted version again, from its first step (`retry/retry.go`)."""
    return (patch_status(Rollout(rollout), {"abort": False}),)


def pause(rollout: Json) -> Requests:
    """Hold everything by `spec.paused` (`pause/pause.go`)."""
    return (patch_spec(Rollout(rollout), {"paused": True}),)


def resume(rollout: Json) -> Requests:
    """Take `spec.paused` away and nothing else; a part of the plugin's `promote`."""
    return (patch_spec(Rollout(rollout), {"paused": False}),)


def restart(rollout: Json, at: datetime) -> Requests:
    """New pods for those that are older than `at`, as fast as `maxUnavailable` lets (`restart/restart.go`)."""
    moment = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (patch_spec(Rollout(rollout), {"restartAt": moment}),)


def restore(rollout: Json, template: Json, *, workload: Json | None = None) -> Requests:
    """A pod template that was there before, as `undo/undo.go` sends it; nothing when it is there still.

    With `spec.workloadRef` it is `workload` that changes.
    """
    holder = _holder(Rollout(rollout), workload)
    if templates_match(holder["spec"]["template"], template):
        return ()
    operation = {"op": "replace", "path": "/spec/template", "value": template}
    return (_request("PATCH", holder, patch=PatchKind.JSON, body=[operation]),)


def set_image(rollout: Json, container: str, image: str, *, workload: Json | None = None) -> Requests:
    """Another image for every container of that name; `*` for all of them (`set/set_image.go`).

    The whole object is written (PUT), so that a change in between is a conflict. With `spec.workloadRef` it is
    `workload` that changes.

    Raises:
        NotPossible: when no container has that name.
    """
    holder = _holder(Rollout(rollout), workload)
    return (_request("PUT", holder, body=with_image(holder, container, image)),)


def patch_status(ro: Rollout, status: Json) -> Request:
    """A merge patch of the status subresource."""
    body = {"status": status}
    return _request("PATCH", ro.object, subresource="status", patch=PatchKind.MERGE, body=body)


def patch_spec(ro: Rollout, spec: Json) -> Request:
    """A merge patch of the object itself."""
    return _request("PATCH", ro.object, patch=PatchKind.MERGE, body={"spec": spec})


def next_step(ro: Rollout) -> int:
    """The index after the running step, never past the end."""
    return min(ro.step_index + 1, len(ro.steps))


def require_step(ro: Rollout, index: int) -> None:
    """Refuse an index that the rollout cannot be at.

    Raises:
        NotPossible: with the plugin's words where it has some.
    """
    if not ro.steps:
        strategy = "a blue-green rollout" if ro.blue_green is not None else "a rollout without steps"
        raise NotPossible(f"{ro.name}: cannot skip steps of {strategy}", hint="promote it without a step")
    if not 0 <= index <= len(ro.steps):
        raise NotPossible(f"{ro.name} has no step {index}", hint=f"0 to {len(ro.steps)}, the last for past all")


def _inconclusive(ro: Rollout) -> bool:
    step_run = (ro.status.get("canary") or {}).get("currentStepAnalysisRunStatus") or {}
    return ro.canary is not None and step_run.get("status") == "Inconclusive"


def _holder(ro: Rollout, workload: Json | None) -> Json:
    if not ro.workload_ref:
        return ro.object
    if workload is None:
        ref = ro.workload_ref
        raise NotPossible(
            f"{ro.name} has its template from {ref.get('kind')} {ref.get('name')}, which was not read", hint="try again"
        )
    return workload


def _request(method: str, thing: Json, **rest: object) -> Request:
    name, namespace = thing["metadata"].get("name", ""), thing["metadata"].get("namespace")
    resource = resource_of(thing) if thing.get("kind") else ROLLOUTS
    return Request.model_validate(
        {"method": method, "resource": resource, "name": name, "namespace": namespace, **rest}
    )
