"""How many engines a delivery to clusters holds in each region at once, and what they cost an hour."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.region_objects import trial_of
from pipelines.spec import Delivery
from rollouts.cluster.capacity import Need, need_of
from rollouts.kube.model import Json
from rollouts.manifests.spec import ArgoFleetSpec, Strategy
from rollouts.manifests.steps import steps_of
from tidegate.core.model import Value


class EngineCount(Value):
    """Engines of one region."""

    region: str
    serving: int
    """Of the stable; with an autoscaler the number that is planned with."""
    first: int
    """Beside it, while a canary has no users."""
    most: int
    """Beside it, at the height of a trial: what has to be free before one begins."""
    warm: int
    """Kept behind it after promotions, so that going back needs no start: they hold their place beside all that."""
    per_hour: float | None = None
    """What `most` costs more in an hour of a trial, in `currency`; None when the spec has no `cost`."""
    currency: str = ""


def engine_counts(spec: Delivery) -> tuple[EngineCount, ...]:
    """One for each region in the order of the waves; none for the fleet on this machine."""
    fleet = spec.fleet
    return tuple(_counts(spec, fleet)) if isinstance(fleet, ArgoFleetSpec) else ()


def _counts(spec: Delivery, fleet: ArgoFleetSpec) -> Iterator[EngineCount]:
    for region in spec.regions.names:
        replicas = fleet.replicas_in(region)
        need = _need(spec, fleet, replicas)
        yield EngineCount(
            region=region,
            serving=replicas,
            first=need.first,
            most=need.most,
            warm=fleet.previous.versions * replicas if fleet.previous else 0,
            per_hour=need.most * spec.cost.per_engine_hour if spec.cost else None,
            currency=spec.cost.currency if spec.cost else "",
        )


def _need(spec: Delivery, fleet: ArgoFleetSpec, replicas: int) -> Need:
    """As the region's own check before a version is brought up has it."""
    canary = {
        "steps": steps_of(trial_of(spec), fleet.canary, replicas),
        "dynamicStableScale": fleet.canary.dynamic_stable,
    }
    blue_green = {"previewReplicaCount": fleet.canary.replicas}
    strategy: Json = {"blueGreen": blue_green} if fleet.strategy is Strategy.BLUE_GREEN else {"canary": canary}
    rollout: Json = {"spec": {"replicas": replicas, "strategy": strategy}}
    return need_of(rollout, rollout)
