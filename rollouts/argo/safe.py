"""The plugin's actions as compare-and-set: refused where they would harm, void where they would change nothing.

Every request carries the `resourceVersion` of the object that was decided on, so that the API server answers 409 when
anything happened in between. Whoever sends then reads again and asks here again, with the same `Expected`: two who
promote at once move the rollout by one step, not by two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rollouts.argo import patches
from rollouts.argo.images import containers_of, with_image
from rollouts.argo.model import Rollout
from rollouts.argo.patches import Requests, next_step, patch_status, require_step
from rollouts.argo.phase import says_aborted
from rollouts.argo.revisions import of_hash, target, template_as_asked
from rollouts.errors import NotPossible
from rollouts.kube.model import Json, PatchKind, Request
from rollouts.kube.requests import STRICT
from tidegate.core.model import Value


class Expected(Value):
    """Where the rollout is thought to be; what is None may be anything."""

    pod_hash: str | None = None
    """`status.currentPodHash`: the version that is on its way, or the stable one when none is."""
    step: int | None = None
    """`status.currentStepIndex`."""

    @classmethod
    def of(cls, rollout: Json) -> Expected:
        """Where this object is."""
        seen = Rollout(rollout)
        return cls(pod_hash=seen.pod_hash, step=seen.step_index)


ANYWHERE = Expected()


def promote(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """Out of its pause, to whatever comes next; an undecided analysis counts as passed.

    What only `spec.paused` holds goes on where it was, and keeps its step (the plugin's `promote` skips it).

    Raises:
        NotPossible: when it is elsewhere, aborted, or not paused: then the plugin would skip what runs now.
    """
    seen = _at(rollout, expected)
    _refuse_aborted(seen, "promote")
    if seen.pause_conditions:
        return renewed(_spec_first(patches.promote(rollout)), seen.resource_version)
    if seen.paused_by_spec:
        return renewed(patches.resume(rollout), seen.resource_version)
    if seen.controller_pause:
        return ()  # somebody took the pause away, and the controller has not seen it yet
    _require_progress(seen, "promote")
    raise NotPossible(
        f"{seen.name} is not paused: promoting it now would skip what runs at {_place(seen)}",
        hint="wait for a pause, or say so: --skip-step or --full",
    )


def promote_full(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """Past all steps, pauses and analyses; nothing when that was said already, or when it is the stable version.

    Raises:
        NotPossible: when it is elsewhere, or aborted: the controller would take the abort back.
    """
    seen = _at(rollout, expected)
    _refuse_aborted(seen, "promote")
    if seen.promoting_in_full and not seen.paused_by_spec:
        return ()
    return renewed(_spec_first(patches.promote_full(rollout)), seen.resource_version)


def skip_step(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """Past the running step, a pause or an analysis.

    Raises:
        NotPossible: when it is elsewhere, or has no running step.
    """
    seen = Rollout(rollout)
    if seen.steps and seen.step is None:
        raise NotPossible(f"{seen.name} is past its last step")
    return to_step(rollout, next_step(seen), expected)


def to_step(rollout: Json, index: int, expected: Expected = ANYWHERE) -> Requests:
    """To the step with this index, up or down; nothing when it is there.

    Takes its pause away together with the controller's memory of it: else a pause at the new step would count as one
    that somebody ended (`CompletedCanaryPauseStep`), and users would move on at once.

    Raises:
        NotPossible: when it is elsewhere, has no such step, or nothing is in progress.
    """
    seen = _at(rollout, expected)
    require_step(seen, index)
    _require_progress(seen, "move")
    _refuse_aborted(seen, "move")
    if seen.promoting_in_full:
        raise NotPossible(f"{seen.name} is being promoted in full: its steps do not count any more")
    if seen.step_index == index:
        return ()
    status = {"pauseConditions": None, "controllerPause": False, "currentStepIndex": index}
    return renewed((patch_status(seen, status),), seen.resource_version)


def abort(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """All users back to the stable version; nothing when it was aborted already.

    Raises:
        NotPossible: when it is elsewhere, or nothing is in progress: then there is nothing to go back to, and
            controllers before 1.0 scaled the stable version to 0 (argo-rollouts#1292).
    """
    seen = _at(rollout, expected)
    if seen.aborted:
        return ()
    if not seen.stable_hash:
        raise NotPossible(f"{seen.name} was never promoted: there is no stable version to go back to")
    _require_progress(seen, "abort")
    if seen.promoting_in_full:
        # A controller that promotes in full forgets an abort (`rollout/canary.go`, `syncRolloutStatusCanary`).
        return renewed((patch_status(seen, {"abort": True, "promoteFull": False}),), seen.resource_version)
    return renewed(patches.abort(rollout), seen.resource_version)


def retry(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """The aborted version again, from its first step.

    Raises:
        NotPossible: when it is elsewhere, or was not aborted.
    """
    seen = _at(rollout, expected)
    if not seen.aborted and says_aborted(seen):
        return ()  # somebody said so, and the controller has not seen it yet
    if not seen.aborted:
        raise NotPossible(f"{seen.name} was not aborted: there is nothing to retry")
    return renewed(patches.retry(rollout), seen.resource_version)


def pause(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """Hold everything; nothing when somebody did already."""
    seen = _at(rollout, expected)
    return () if seen.paused_by_spec else renewed(patches.pause(rollout), seen.resource_version)


def resume(rollout: Json, expected: Expected = ANYWHERE) -> Requests:
    """Let go what `pause` holds; the pauses of steps stay."""
    seen = _at(rollout, expected)
    return renewed(patches.resume(rollout), seen.resource_version) if seen.paused_by_spec else ()


def restart(rollout: Json, at: datetime, expected: Expected = ANYWHERE) -> Requests:
    """New pods for those that are older than `at`."""
    seen = _at(rollout, expected)
    return renewed(patches.restart(rollout, at), seen.resource_version)


def undo(
    rollout: Json,
    replica_sets: Sequence[Json],
    revision: int = 0,
    expected: Expected = ANYWHERE,
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
    seen = Rollout(rollout)
    if revision or not (seen.in_progress and seen.stable_hash):
        return template_as_asked(target(rollout, replica_sets, revision))
    stable = of_hash(rollout, replica_sets, seen.stable_hash)
    if stable is None:
        raise NotPossible(f"the stable ReplicaSet of {seen.name} is gone", hint="say which: --to-revision N")
    return template_as_asked(stable)


def restore(rollout: Json, template: Json, expected: Expected = ANYWHERE, *, workload: Json | None = None) -> Requests:
    """A pod template that was there before; nothing when it is there still.

    Raises:
        NotPossible: when it is elsewhere.
    """
    _at(rollout, expected)
    requests = patches.restore(rollout, template, workload=workload)
    return renewed(requests, Rollout(workload or rollout).resource_version)


def set_image(
    rollout: Json, container: str, image: str, expected: Expected = ANYWHERE, *, workload: Json | None = None
) -> Requests:
    """Another image for every container of that name; nothing when they have it.

    Raises:
        NotPossible: when it is elsewhere, no container has that name, or the template is not a Deployment's: the
            plugin writes to a Deployment of that name, whatever `spec.workloadRef` says.
    """
    seen = _at(rollout, expected)
    ref = seen.workload_ref or {}
    if ref and ref.get("kind") != "Deployment":
        raise NotPossible(f"{seen.name} has its template from {ref.get('kind')} {ref.get('name')}: change it there")
    requests = patches.set_image(rollout, container, image, workload=workload)
    holder = workload if ref and workload else rollout
    same = containers_of(with_image(holder, container, image)) == containers_of(holder)
    return () if same else renewed(requests, Rollout(holder).resource_version)


def renewed(requests: Requests, resource_version: str) -> Requests:
    """The same requests as ours, valid only while the object has this resource version."""
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
    """The plugin patches the status first; a controller that still sees `spec.paused` may then pause the step anew."""
    return tuple(sorted(requests, key=lambda request: request.subresource == "status"))


def _at(rollout: Json, expected: Expected) -> Rollout:
    seen = Rollout(rollout)
    if expected.pod_hash is not None and expected.pod_hash != seen.pod_hash:
        raise NotPossible(
            f"{seen.name} moved on: its version is {seen.pod_hash or 'none'}, and {expected.pod_hash} was meant",
            hint="look again, then say it again",
        )
    if expected.step is not None and expected.step != seen.step_index:
        raise NotPossible(
            f"{seen.name} moved on: it is at step {seen.step_index}, and {expected.step} was meant",
            hint="look again, then say it again",
        )
    return seen


def _require_progress(seen: Rollout, verb: str) -> None:
    if not seen.in_progress:
        raise NotPossible(f"nothing is in progress in {seen.name}: there is nothing to {verb}")


def _refuse_aborted(seen: Rollout, verb: str) -> None:
    if seen.aborted:
        raise NotPossible(f"{seen.name} was aborted: there is nothing to {verb}", hint="retry it, or undo it")


def _place(seen: Rollout) -> str:
    return f"step {seen.step_index} of {len(seen.steps)}" if seen.steps else "its switch"
