"""What a delivery does to a Rollout, as compare-and-set: decided, sent, and read back until the controller has done it.

The bodies are those of kubectl's Argo Rollouts plugin; file names are those below `pkg/kubectl-argo-rollouts/cmd/` of
argo-rollouts. Every request carries the `resourceVersion` of the object that was decided on, so that the API server
answers 409 when anything happened in between. Then it is read and decided again, for the same version on trial.

An answer that was lost is looked up, and the action is complete once the controller has processed it. A patch of the
status moves no generation, so that `observedGeneration` says nothing about it: what the controller made of it has to
show in the fields that it writes.

Argo Rollouts up to 1.9.1 puts its own older copy of a Rollout over a newer one in its cache: what others write within
50 ms after its own write is stored and shown, and half of it never acted upon (argo-rollouts#3316, #4073, #4694; mended
by #4786, first in v1.10.0-rc1). Any later write to the object wakes it (`RolloutClient.wake`).
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from rollouts.argo.model import Rollout, is_abort_confirmed, is_pause_stale, likely_cause, waiting_for_controller
from rollouts.errors import FleetError, NotConfirmed, NotPossible
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import ROLLOUTS, STRICT, PatchKind, Request, Resource
from rollouts.kube.retry import Attempts, Backoff, RetryPolicy, is_transient, time_left
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, WOKEN

REACT_SECONDS = 30.0
"""A controller that is well answers within a second or two; the queue of a large cluster takes longer."""

BACKOFF = Backoff(first_seconds=0.1, most_seconds=1.0)
"""Between looks at a controller's reaction, and after a conflict with its own writes."""

SILENT_SECONDS = 1.0
"""A controller that has heard writes within this; one that has much to do is asked for no more than a look."""

WAKER = "tidegate-waker"
"""Its own field manager: the time at which tidegate wrote the template says since when the controller is silent."""

INJECTED = "rollout.argoproj.io/ephemeral-metadata"
"""Annotation of a ReplicaSet: what the controller put into its template, such as the role."""

log = logging.getLogger(__name__)

Decide = Callable[[Json], Request | None]
"""The request for a Rollout in this state, None when all is as desired."""

Converged = Callable[[Json, Json], bool]
"""Whether an action had its effect, by the Rollout before and now; raises `NotPossible` when it was overtaken."""


def promote_full(rollout: Json) -> Request | None:
    """Past all steps, pauses and analyses; nothing when that was said already, or when it is the stable version.

    Raises:
        NotPossible: when it is aborted: the controller would take the abort back.
    """
    ro = Rollout(rollout)
    _refuse_aborted(ro, "promote")
    goes = ro.in_progress and not ro.promoting_in_full
    return _patch(ro, {"status": {"promoteFull": True}}, subresource="status") if goes else None


def to_step(rollout: Json, index: int) -> Request | None:
    """To the step with this index, up or down; nothing when it is there.

    Takes its pause away together with the controller's memory of it: else a pause at the new step would count as one
    that somebody ended (`CompletedCanaryPauseStep`), and users would move on at once.

    Raises:
        NotPossible: when it has no such step, or nothing is in progress.
    """
    ro = Rollout(rollout)
    if not 0 <= index <= len(ro.steps):
        raise NotPossible(f"{ro.name} has no step {index}", hint=f"0 to {len(ro.steps)}, the last for past all")
    _require_progress(ro, "move")
    _refuse_aborted(ro, "move")
    if ro.promoting_in_full:
        raise NotPossible(
            f"{ro.name} is being promoted in full: its steps do not count any more",
            hint=f"wait for it: kubectl argo rollouts status {ro.name}",
        )
    moved = {"pauseConditions": None, "controllerPause": False, "currentStepIndex": index}
    return _patch(ro, {"status": moved}, subresource="status") if ro.step_index != index else None


def abort(rollout: Json) -> Request | None:
    """All users back to the stable version (`abort/abort.go`); nothing when it was aborted already.

    Raises:
        NotPossible: when nothing is in progress: then there is nothing to go back to, and controllers before 1.0
            scaled the stable version to 0 (argo-rollouts#1292).
    """
    ro = Rollout(rollout)
    if ro.aborted:
        return None
    if not ro.stable_hash:
        raise NotPossible(
            f"{ro.name} was never promoted: there is no stable version to go back to",
            hint="wait for its first version, or delete the Rollout",
        )
    _require_progress(ro, "abort")
    # A controller that promotes in full forgets an abort (`rollout/canary.go`, `syncRolloutStatusCanary`).
    forgets = {"promoteFull": False} if ro.promoting_in_full else {}
    return _patch(ro, {"status": {"abort": True, **forgets}}, subresource="status")


def resume(rollout: Json) -> Request | None:
    """Let go what a person holds by `spec.paused`; the pauses of steps stay."""
    ro = Rollout(rollout)
    return _patch(ro, {"spec": {"paused": False}}) if ro.paused_by_spec else None


async def change(cluster: KubeClient, resource: Resource, live: Json, operations: list[Json]) -> None:
    """Send these operations of a JSON patch on a Rollout or its workload; nothing when there are none."""
    if operations:
        await cluster.send(_patch(Rollout(live), operations, resource=resource))


def original_template(replica_set: Json) -> Json:
    """The pod template that somebody once asked for, without anything that the controller put into it.

    Restored with a role in it, the template would be a new one with new pods: the role is the controller's, and
    `undo` of kubectl's plugin takes nothing but the hash away.
    """
    template: Json = deepcopy(replica_set["spec"]["template"])
    injected = json.loads((replica_set["metadata"].get("annotations") or {}).get(INJECTED) or "{}")
    metadata = template.get("metadata") or {}
    (metadata.get("labels") or {}).pop(POD_TEMPLATE_HASH, None)
    for part in ("labels", "annotations"):
        for key in injected.get(part) or {}:
            (metadata.get(part) or {}).pop(key, None)
    return template


def templates_match(now: object, desired: object) -> bool:
    """Whether all that stands in `now` stands in `desired` too (`Semantic.DeepDerivative`).

    What is empty in `now` does not count: the API server filled it into the ReplicaSet's. Quantities are compared as
    they are written, so that `1` and `1000m` differ; then a template is restored that was there already.
    """
    if now is None or now in ("", [], {}):
        return True
    if isinstance(now, dict) and isinstance(desired, dict):
        without_hash = {key: value for key, value in now.items() if key != POD_TEMPLATE_HASH}
        return all(templates_match(value, desired.get(key)) for key, value in without_hash.items())
    if isinstance(now, list) and isinstance(desired, list):
        return len(now) <= len(desired) and all(map(templates_match, now, desired))
    return now == desired


def _patch(
    ro: Rollout,
    body: Json | list[Any],
    *,
    subresource: str = "",
    resource: Resource = ROLLOUTS,
    query: Mapping[str, str] = STRICT,
) -> Request:
    """Valid only while the object has the resource version that was read."""
    held = {"resourceVersion": ro.resource_version}
    if isinstance(body, dict):
        kind, body = PatchKind.MERGE, {"metadata": {}, **body}
        body["metadata"] = body["metadata"] | held
    else:
        # `replace` and not `test`: a failed test is a 422, and a resource version that is not the newest a 409.
        lock = {"op": "replace", "path": "/metadata/resourceVersion", "value": ro.resource_version}
        kind, body = PatchKind.JSON, [lock, *body]
    namespace = ro.metadata.get("namespace")
    return Request("PATCH", resource, ro.name, namespace, subresource, patch=kind, body=body, query=query)


def _require_progress(ro: Rollout, verb: str) -> None:
    if not ro.in_progress:
        raise NotPossible(
            f"nothing is in progress in {ro.name}: there is nothing to {verb}",
            hint=f"see: kubectl argo rollouts get rollout {ro.name}",
        )


def _refuse_aborted(ro: Rollout, verb: str) -> None:
    if ro.aborted:
        raise NotPossible(f"{ro.name} was aborted: there is nothing to {verb}", hint="retry it, or undo it")


class RolloutClient:
    """One Rollout.

    Each action is for the version whose pod template hash is `trial`, at whatever step it is by now. It raises
    `NotPossible` when it is refused or overtaken, `NotConfirmed` when its effect does not show in time, and what
    `KubeClient` raises.
    """

    def __init__(self, name: str, cluster: KubeClient, clock: Clock, *, allows: Callable[[Json], None]) -> None:
        """`allows` checks the Rollout before it is written, and raises to refuse the write."""
        self._name, self._cluster, self._clock, self._allows = name, cluster, clock, allows
        self._version, self._since, self._woken = "", 0.0, False
        self._retries = RetryPolicy(clock, seconds=REACT_SECONDS, backoff=BACKOFF)

    async def promote_full(self, trial: str) -> None:
        """Past all steps; returns once none holds it, which is before every pod is up."""
        await self._carry_out(promote_full, is_past_all_steps, trial)

    async def to_step(self, index: int, trial: str) -> None:
        """To the step with this index, up or down."""
        await self._carry_out(partial(to_step, index=index), partial(is_at_step, index=index), trial)

    async def abort(self, trial: str) -> None:
        """All users back to the stable version; returns once the controller wrote when it aborted."""
        await self._carry_out(abort, lambda _, now: is_abort_confirmed(Rollout(now)), trial)

    async def resume(self) -> None:
        """Let go what a person holds by `spec.paused`, and nothing else; it may be in the pause of a step."""
        await self._carry_out(
            resume, lambda _, now: not (waiting_for_controller(now) or Rollout(now).paused_by_spec), None
        )

    async def wake(self, rollout: Json) -> None:
        """Write an annotation where the Rollout, for whose controller somebody waits, did not change for a second."""
        ro, now = Rollout(rollout), self._clock.monotonic()
        if ro.resource_version != self._version:
            self._version, self._since = ro.resource_version, now
        if now - self._since < SILENT_SECONDS:
            return
        self._allows(rollout)
        annotations = {WOKEN: self._clock.now().isoformat()}
        woken = _patch(ro, {"metadata": {"annotations": annotations}}, query=STRICT | {"fieldManager": WAKER})
        self._since = now
        try:
            written = await self._cluster.send(woken)
        except FleetError as error:
            # Somebody else's write wakes it as well; whoever waits meets everything else.
            log.info("%s: its controller was not woken: %s", ro.name, error)
            return
        self._version, self._woken = Rollout(written).resource_version, True

    def woken(self) -> str:
        """What has come of it since it was told last; empty when no controller had to be woken."""
        woken, self._woken = self._woken, False
        if not woken:
            return ""
        return "its controller had not reacted, and was woken by another write (Argo Rollouts up to 1.9.1 loses some)"

    async def _carry_out(self, decide: Decide, converged: Converged, trial: str | None) -> None:
        """Decide and send until it is sent, then wait.

        What was sent without an answer may have been done: it is decided again on what is there, and is nothing then.
        """
        attempts = Attempts(self._retries)
        rollout = before = await self._cluster.get(ROLLOUTS, self._name)
        while True:
            self._allows(rollout)
            ro = Rollout(rollout)
            if trial not in {None, ro.pod_hash}:
                raise NotPossible(
                    f"{ro.name} moved on: its version is {ro.pod_hash or 'none'}, and {trial} was meant",
                    hint="the Rollout changed meanwhile: check its status and retry",
                )
            request = decide(rollout)
            try:
                if request:
                    await self._cluster.send(request)
                break
            except FleetError as error:
                if not (is_transient(error) and await attempts.pause()):
                    raise
            rollout = await self._cluster.get(ROLLOUTS, self._name)
        await self._wait(before, converged, attempts, sent=request is not None)

    async def _wait(self, before: Json, converged: Converged, attempts: Attempts, *, sent: bool) -> None:
        """Until the controller has processed what was sent; one that is silent is woken."""
        for looks in itertools.count(1):
            rollout = await self._cluster.get(ROLLOUTS, self._name)
            if converged(before, rollout):
                return
            left = min(REACT_SECONDS - attempts.elapsed, time_left())
            # What is left of a difference of two clocks' floats may be too little for either to move on.
            if left < 1e-6:
                waited = f"nothing came of it in {attempts.elapsed:.0f} s"
                said = f"{self._name}: sent, and {waited}" if sent else f"{self._name}: said before, and {waited}"
                raise NotConfirmed(said, hint=likely_cause(Rollout(rollout)))
            await self.wake(rollout)
            await self._clock.sleep(min(BACKOFF.pause(looks, 1.0), left))


def is_at_step(before: Json, now: Json, index: int) -> bool:
    """After `to_step`: it is at the step, or has gone on from it."""
    was, ro = _same_trial(before, now)
    if waiting_for_controller(now) or is_pause_stale(ro):
        return False
    beyond = ro.step_index >= index
    return beyond and (index >= was.step_index or ro.step_index < was.step_index)


def is_past_all_steps(before: Json, now: Json) -> bool:
    """After `promote_full`: no step and no pause holds it any more; its pods may still be coming up."""
    _, ro = _same_trial(before, now)
    if waiting_for_controller(now) or is_pause_stale(ro) or ro.paused_by_spec:
        return False
    return not ro.in_progress or (ro.step is None and not ro.pause_conditions)


def _same_trial(before: Json, now: Json) -> tuple[Rollout, Rollout]:
    was, ro = Rollout(before), Rollout(now)
    if ro.pod_hash != was.pod_hash:
        raise NotPossible(
            f"{ro.name} was given another version meanwhile: {ro.pod_hash}, not {was.pod_hash}",
            hint=f"see: kubectl argo rollouts get rollout {ro.name}",
        )
    if ro.aborted and not was.aborted:
        raise NotPossible(f"{ro.name} was aborted meanwhile", hint=f"see: kubectl argo rollouts get rollout {ro.name}")
    return was, ro
