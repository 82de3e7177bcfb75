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
    CLUSTER_ANALYSIS_TEMPLATES,
    DEPLOYMENTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from tidegate.core.model import Json

_SAME = "This rollout uses the same service for the {} services, but two different services are required."
_NO_SUCH_ROUTE = "Steps define a route that does not exist in spec.strategy.canary.trafficRouting.managedRoutes"
STEPS = (
    "experiment", "setWeight", "setCanaryScale", "pause", "analysis", "setHeaderRoute", "setMirrorRoute", "plugin",
)  # fmt: skip
NOT_SIMULATED = ("experiment", "plugin")


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
        yield from (f"{at}.steps[{index}]{problem}" for problem in _step_problems(rollout, step, world))


def _step_problems(rollout: Rollout, step: Json, world: World) -> Iterator[str]:
    named = [name for name in STEPS if name in step]
    if any(name in NOT_SIMULATED for name in named):
        raise NotImplementedError(f"the simulated controller has no {named[0]} steps")
    if len(named) != 1:
        yield f": Invalid value: Step must have one of the following set: {', '.join(STEPS[:5])}"
        return
    name, value = named[0], step[named[0]]
    if name == "setWeight" and not 0 <= value <= (rollout.traffic or {}).get("maxTrafficWeight", 100):
        yield f".setWeight: Invalid value: {value}: SetWeight needs to be between 0 and 100"
    if name == "pause" and (value or {}).get("duration") is not None and seconds_of(value["duration"]) < 0:
        yield ".pause.duration: Invalid value: Duration needs to be greater than 0"
    if name == "setCanaryScale" and rollout.traffic is None:
        yield ".setCanaryScale: Invalid value: SetCanaryScale requires TrafficRouting to be set"
    if name in ("setHeaderRoute", "setMirrorRoute"):
        managed = {one["name"] for one in (rollout.traffic or {}).get("managedRoutes", ())}
        routers = set(rollout.traffic or ())
        if name == "setMirrorRoute" and not ("istio" in routers or ("plugins" in routers and world.mirrors)):
            yield ".setMirrorRoute: Invalid value: SetMirrorRoute requires TrafficRouting, supports Istio only"
        elif rollout.traffic is None:
            yield f".{name}: Invalid value: {name} requires TrafficRouting"
        elif value["name"] not in managed:
            yield f".{name}: Invalid value: {_NO_SUCH_ROUTE}"


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
    for where, reference in _templates(rollout, at):
        name, cluster = reference["templateName"], bool(reference.get("clusterScope"))
        kind = CLUSTER_ANALYSIS_TEMPLATES if cluster else ANALYSIS_TEMPLATES
        if world.find(kind, name, rollout.namespace) is None:
            yield f"{where}.templates: Invalid value: \"{name}\": {kind.kind} '{name}' not found"
    istio = (rollout.traffic or {}).get("istio", {})
    for config in [istio["virtualService"]] if "virtualService" in istio else istio.get("virtualServices", ()):
        name, _, namespace = str(config["name"]).partition(".")
        if world.find(VIRTUAL_SERVICES, name, namespace or rollout.namespace) is None:
            text = f'virtualservices.networking.istio.io "{name}" not found'
            yield f'{at}.trafficRouting.istio.virtualService.name: Invalid value: "{name}": {text}'


def _templates(rollout: Rollout, at: str) -> Iterator[tuple[str, Json]]:
    """Every analysis template that the strategy names, with its place."""
    places = {
        f"{at}.{name}": rollout.strategy.get(name)
        for name in ("analysis", "prePromotionAnalysis", "postPromotionAnalysis")
    }
    places |= {f"{at}.steps[{index}].analysis": step.get("analysis") for index, step in enumerate(rollout.steps)}
    for where, analysis in places.items():
        yield from ((where, reference) for reference in (analysis or {}).get("templates", ()))


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
