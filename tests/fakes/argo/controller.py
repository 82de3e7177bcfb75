"""The Rollouts controller's loop body: one Rollout from its spec to its next status, or why it is refused.

Upstream: `rollout/controller.go` (`syncHandler`, `getRolloutValidationErrors`), `rollout/context.go` (`reconcile`),
`rollout/sync.go` (`checkPausedConditions`, `syncReplicasOnly`), `rollout/templateref.go` (`workloadRef`),
`pkg/apis/rollouts/validation/validation.go` and `validation_references.go`: the API server lets most wrong Rollouts
pass, the controller answers `InvalidSpec`, and nothing else happens to them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from fakes.argo import conditions, replica_sets
from fakes.argo.conditions import seconds_of
from fakes.argo.objects import MANAGED_BY, WORKLOAD_GENERATION, Rollout, annotate
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.replica_sets import selector_of
from fakes.argo.strategies import reconcile_blue_green, reconcile_canary, scale_blue_green, scale_canary
from fakes.argo.world import World

from rollouts.kube.resources import (
    ANALYSIS_TEMPLATES,
    DEPLOYMENTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from tidegate.core.model import Json

_SAME = "This rollout uses the same service for the {} services, but two different services are required."
STEPS = ("setWeight", "setCanaryScale", "pause", "setHeaderRoute", "setMirrorRoute")
"""Routes by header and for copies are taken, and nothing is done for them."""


def problem_of(rollout: Rollout, world: World) -> str | None:
    """The first thing wrong, as the condition says it; None for a Rollout that is right.

    Raises:
        NotImplementedError: a step that this simulation does not know.
    """
    return next(_problems(rollout, world), None)


def _problems(rollout: Rollout, world: World) -> Iterator[str]:
    spec = rollout.spec
    strategies = [name for name in ("canary", "blueGreen") if spec.get("strategy", {}).get(name) is not None]
    if len(strategies) != 1:
        many = "Invalid value: Multiple Strategies can not be listed"
        none = "Required value: Rollout has missing field '.spec.strategy.canary or .spec.strategy.blueGreen'"
        yield f"spec.strategy.strategy: {many if strategies else none}"
        return
    labels = rollout.template.get("metadata", {}).get("labels", {})
    if not rollout.selector.get("matchLabels"):
        yield "spec.selector: Required value: Rollout has missing field '.spec.selector'"
    elif any(labels.get(key) != value for key, value in rollout.selector["matchLabels"].items()):
        yield "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`"
    if rollout.canary is not None:
        yield from _canary_problems(rollout, world)
    else:
        strategy = rollout.strategy
        if any(name.endswith("PromotionAnalysis") for name in strategy):
            raise NotImplementedError("the simulated controller has no analyses of blue-green")
        if strategy.get("activeService") == strategy.get("previewService"):
            same = _SAME.format("active and preview")
            yield f'spec.strategy.blueGreen.activeService: Invalid value: "{strategy.get("activeService")}": {same}'
    yield from _reference_problems(rollout, world)


def _canary_problems(rollout: Rollout, world: World) -> Iterator[str]:
    strategy, at = rollout.strategy, "spec.strategy.canary"
    canary, stable = strategy.get("canaryService"), strategy.get("stableService")
    if canary and canary == stable:
        text = _SAME.format("stable and canary")
        yield f'{at}.stableService: Invalid value: "{stable}": {text}'
    if rollout.traffic is not None and not (canary and stable) and "istio" not in rollout.traffic:
        name = "stableService" if canary else "canaryService"
        yield f"{at}.{name}: Invalid value: \"\": Rollout has missing field '{at}.{name}'"
    if rollout.traffic is None:
        for name, word in (("scaleDownDelaySeconds", "scaleDownDelay"), ("dynamicStableScale", "dynamicStableScale")):
            if strategy.get(name):
                yield f"{at}.{name}: Invalid value: Canary {word} can only be used with traffic routing"
    if rollout.dynamic and strategy.get("scaleDownDelaySeconds"):
        text = "Canary dynamicStableScale cannot be used with scaleDownDelaySeconds"
        yield f"{at}.dynamicStableScale: Invalid value: true: {text}"
    if all(str(strategy.get(name)) in ("0", "0%") for name in ("maxSurge", "maxUnavailable")):
        yield f"{at}.maxSurge: Invalid value: MaxSurge and MaxUnavailable both can not be zero"
    for index, step in enumerate(rollout.steps):
        yield from (f"{at}.steps[{index}]{problem}" for problem in _step_problems(rollout, step))


def _step_problems(rollout: Rollout, step: Json) -> Iterator[str]:
    name, value = next(iter(step.items()))
    if name not in STEPS:
        raise NotImplementedError(f"the simulated controller has no {name} steps")
    if name == "setWeight" and not 0 <= value <= (rollout.traffic or {}).get("maxTrafficWeight", 100):
        yield f".setWeight: Invalid value: {value}: SetWeight needs to be between 0 and 100"
    if name == "pause" and (value or {}).get("duration") is not None and seconds_of(value["duration"]) < 0:
        yield ".pause.duration: Invalid value: Duration needs to be greater than 0"
    if name == "setCanaryScale" and rollout.traffic is None:
        yield ".setCanaryScale: Invalid value: SetCanaryScale requires TrafficRouting to be set"


def _reference_problems(rollout: Rollout, world: World) -> Iterator[str]:
    at = "spec.strategy.blueGreen" if rollout.blue_green is not None else "spec.strategy.canary"
    for role in ("stableService", "canaryService", "activeService", "previewService"):
        name = rollout.strategy.get(role)
        service = world.find(SERVICES, name, rollout.namespace) if name else None
        if name and service is None:
            yield f'{at}.{role}: Invalid value: "{name}": service "{name}" not found'
        elif service is not None:
            owner = (service["metadata"].get("annotations") or {}).get(MANAGED_BY, rollout.name)
            if owner != rollout.name:
                yield f'{at}.{role}: Invalid value: "{name}": Service "{name}" is managed by another Rollout'
    for reference in (rollout.strategy.get("analysis") or {}).get("templates", ()):
        name = reference["templateName"]
        if world.find(ANALYSIS_TEMPLATES, name, rollout.namespace) is None:
            yield f"{at}.analysis.templates: Invalid value: \"{name}\": AnalysisTemplate '{name}' not found"
    istio = (rollout.traffic or {}).get("istio", {})
    for config in [istio["virtualService"]] if "virtualService" in istio else istio.get("virtualServices", ()):
        name, _, namespace = str(config["name"]).partition(".")
        if world.find(VIRTUAL_SERVICES, name, namespace or rollout.namespace) is None:
            text = f'virtualservices.networking.istio.io "{name}" not found'
            yield f'{at}.trafficRouting.istio.virtualService.name: Invalid value: "{name}": {text}'


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
