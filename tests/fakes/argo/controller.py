"""The Rollouts controller's loop body: one Rollout from its spec to its next status, or why it is refused.

Upstream: `rollout/controller.go` (`syncHandler`, `getRolloutValidationErrors`), `rollout/context.go` (`reconcile`),
`rollout/sync.go` (`checkPausedConditions`), `rollout/templateref.go` (`workloadRef`),
`pkg/apis/rollouts/validation/validation.go` and `validation_references.go`: the API server lets most wrong Rollouts
pass, the controller answers `InvalidSpec`, and nothing else happens to them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from fakes.argo import conditions
from fakes.argo.objects import Rollout
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.strategies import reconcile_canary
from fakes.argo.world import World

from rollouts.kube.resources import DEPLOYMENTS, SERVICES, VIRTUAL_SERVICES
from tidegate.core.model import Json

STEPS = ("setWeight", "setCanaryScale", "pause")


def _require_simulated(rollout: Rollout) -> None:
    if "trafficRouting" not in rollout.strategy:
        raise NotImplementedError("the simulated controller knows canaries with traffic routing alone")
    if any((step.get("pause") or {}).get("duration") for step in rollout.steps):
        raise NotImplementedError("the simulated controller has no pauses that end by themselves")
    unknown = [name for step in rollout.steps for name in step if name not in STEPS]
    if unknown:
        raise NotImplementedError(f"the simulated controller has no {unknown[0]} steps")


def _problems(rollout: Rollout, world: World) -> Iterator[str]:
    at = "spec.strategy.canary"
    for role in ("stableService", "canaryService"):
        name = rollout.strategy.get(role)
        service = world.find(SERVICES, name, rollout.namespace) if name else None
        if name and service is None:
            yield f'{at}.{role}: Invalid value: "{name}": service "{name}" not found'
    if istio := rollout.traffic.get("istio"):
        name = istio["virtualService"]["name"]
        if world.find(VIRTUAL_SERVICES, name, rollout.namespace) is None:
            text = f'virtualservices.networking.istio.io "{name}" not found'
            yield f'{at}.trafficRouting.istio.virtualService.name: Invalid value: "{name}": {text}'


def reconcile(world: World, body: Json) -> None:
    """One pass over a Rollout as it is in the cluster.

    Raises:
        ReconcileError: as upstream returns an error: what came before it is done, the status is not written.
    """
    workload = None
    if reference := body["spec"].get("workloadRef"):
        workload = world.find(DEPLOYMENTS, reference["name"], body["metadata"]["namespace"])
        if workload is None:
            raise ReconcileError(f'deployments.apps "{reference["name"]}" not found')
    r = Reconciliation(world, rollout := Rollout(body, workload))
    _require_simulated(rollout)
    if (problem := next(_problems(rollout, world), None)) is not None:
        _refuse(r, problem)
        return
    _check_paused_conditions(r)
    reconcile_canary(r)


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
    r.write_status(status)


def _check_paused_conditions(r: Reconciliation) -> None:
    """Progressing says `RolloutPaused` or `RolloutResumed` before anything else happens.

    A pause must not count as lack of progress (`checkPausedConditions`).
    """
    status = r.rollout.status
    progress = conditions.condition_of(status, conditions.PROGRESSING)
    reason = progress["reason"] if progress else ""
    paused = bool(status.get("pauseConditions")) or r.rollout.paused
    if reason == conditions.ABORTED:
        return
    if paused and reason != conditions.IS_PAUSED:
        r.write_condition(conditions.PROGRESSING, "Unknown", conditions.IS_PAUSED, "Rollout is paused")
    elif not paused and reason == conditions.IS_PAUSED:
        r.write_condition(conditions.PROGRESSING, "Unknown", conditions.RESUMED, "Rollout is resumed")
