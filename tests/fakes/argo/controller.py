"""The Rollouts controller's loop body: one Rollout from its spec to its next status.

Upstream: `rollout/controller.go` (`syncHandler`), `rollout/context.go` (`reconcile`), `rollout/sync.go`
(`checkPausedConditions`, `syncReplicasOnly`), `rollout/templateref.go` (`workloadRef`).
"""

from __future__ import annotations

import copy

from fakes.argo import conditions, replica_sets
from fakes.argo.blue_green import reconcile_blue_green, scale_blue_green
from fakes.argo.canary import reconcile_canary, scale_canary
from fakes.argo.objects import WORKLOAD_GENERATION, Rollout, annotate
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.replica_sets import selector_of
from fakes.argo.validation import problem_of
from fakes.argo.world import World

from rollouts.kube.model import Json
from rollouts.kube.resources import DEPLOYMENTS


def reconcile(world: World, body: Json) -> None:
    """One pass over a Rollout as it is in the cluster.

    Raises:
        ReconcileError: as upstream returns an error: what came before it is done, the status is not written.
    """
    rollout = _resolved(world, body)
    problem = problem_of(rollout, world)
    if problem is not None:
        _refuse(Reconciliation(world, rollout), problem)
        return
    r = Reconciliation(world, rollout)
    _check_paused_conditions(r)
    if replica_sets.is_scaling_event(r):
        _sync_replicas_only(r)
    elif rollout.blue_green is not None:
        reconcile_blue_green(r)
    else:
        reconcile_canary(r)


def _resolved(world: World, body: Json) -> Rollout:
    """With the template of the Deployment that it refers to, which is nowhere in the Rollout itself."""
    reference = body["spec"].get("workloadRef")
    if not reference:
        return Rollout(body)
    workload = world.find(DEPLOYMENTS, reference["name"], body["metadata"]["namespace"])
    if workload is None:
        raise ReconcileError(f'deployments.apps "{reference["name"]}" not found')
    generation = str(workload["metadata"]["generation"])
    if (body["metadata"].get("annotations") or {}).get(WORKLOAD_GENERATION) != generation:
        annotate(body, **{WORKLOAD_GENERATION: generation})
        body = world.update(body)
    return Rollout(body, workload)


def _refuse(r: Reconciliation, problem: str) -> None:
    """`createInvalidRolloutCondition`; a new message replaces the old one."""
    text = f'The Rollout "{r.rollout.name}" is invalid: {problem}'
    status = copy.deepcopy(r.rollout.status)
    old = conditions.condition_of(status, conditions.INVALID_SPEC)
    if old is None or old["message"] != text:
        conditions.remove_condition(status, conditions.INVALID_SPEC)
        conditions.set_condition(
            status, r.now, conditions.Condition(conditions.INVALID_SPEC, "True", "InvalidSpec", text)
        )
        r.event("InvalidSpec", text, warning=True)
    r.write_status(status)


def _check_paused_conditions(r: Reconciliation) -> None:
    """Progressing says `RolloutPaused`, `RolloutResumed` or `RolloutRetry` before anything else happens.

    A pause must not count as lack of progress (`checkPausedConditions`).
    """
    status = r.rollout.status
    progress = conditions.condition_of(status, conditions.PROGRESSING)
    reason = progress["reason"] if progress else ""
    paused = bool(status.get("pauseConditions")) or r.rollout.paused
    if reason == conditions.ABORTED:
        if not r.rollout.aborted:
            text = "Retrying Rollout after abort"
            r.write_condition(conditions.PROGRESSING, "Unknown", "RolloutRetry", text)
        return
    if paused and reason != conditions.IS_PAUSED:
        r.write_condition(conditions.PROGRESSING, "Unknown", conditions.IS_PAUSED, "Rollout is paused")
    elif not paused and reason == conditions.IS_PAUSED:
        r.write_condition(conditions.PROGRESSING, "Unknown", conditions.RESUMED, "Rollout is resumed")
    if paused != conditions.is_true(status, conditions.PAUSED):
        r.write_condition(conditions.PAUSED, str(paused), conditions.IS_PAUSED, "Rollout is paused")


def _sync_replicas_only(r: Reconciliation) -> None:
    """`spec.replicas` changed: pods follow at once, traffic and steps with the next pass."""
    replica_sets.sync_revision(r)
    status = copy.deepcopy(r.rollout.status)
    if r.rollout.blue_green is not None:
        active = selector_of(r.service(r.rollout.strategy["activeService"]))
        scale_blue_green(r, active)
    else:
        scale_canary(r)
    counted = [
        rs
        for rs in r.all
        if r.rollout.canary is not None or rs.hash == status.get("blueGreen", {}).get("activeSelector")
    ]
    status["availableReplicas"] = sum(rs.available for rs in counted or r.all)
    status["HPAReplicas"] = sum(rs.actual for rs in counted or r.all)
    r.persist(status)
