"""How many pods canary and stable get.

Upstream: `utils/replicaset/canary.go` (`CalculateReplicaCountsForTrafficRoutedCanary`,
`CalculateReplicaCountsForBasicCanary`, `GetCurrentSetWeight`, `UseSetCanaryScale`, `AtDesiredReplicaCountsForCanary`)
and `utils/replicaset/replicaset.go` (`NewRSNewReplicas`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fakes.argo.objects import ReplicaSet, Rollout

from rollouts.kube.model import Json


def current_set_weight(rollout: Rollout) -> int:
    """The last `setWeight` at or before the current step; 0 when aborted or before the first, 100 after the last."""
    if rollout.aborted:
        return 0
    if rollout.step is None:
        return 100
    return previous_set_weight(rollout, (rollout.step_index or 0) + 1)


def previous_set_weight(rollout: Rollout, before: int) -> int:
    """The last `setWeight` before step `before`; 0 without one."""
    return next((int(step["setWeight"]) for step in reversed(rollout.steps[:before]) if "setWeight" in step), 0)


def canary_scale(rollout: Rollout) -> Json | None:
    """The `setCanaryScale` in force. It needs traffic routing, and an abort ends it unless the canary is to stay up."""
    if rollout.traffic is None or rollout.step is None or (rollout.aborted and rollout.abort_scale_down_delay):
        return None
    passed = reversed(rollout.steps[: (rollout.step_index or 0) + 1])
    scale = next((step["setCanaryScale"] for step in passed if "setCanaryScale" in step), None)
    return None if scale is None or scale.get("matchTrafficWeight") else scale


def replicas_or_weight(rollout: Rollout) -> tuple[int | None, int]:
    """Pods that a `setCanaryScale` names, or else the weight that pods should follow (`GetCanaryReplicasOrWeight`)."""
    if rollout.promoting_fully or not rollout.stable_hash or rollout.fully_promoted:
        return None, 100
    scale = canary_scale(rollout)
    if scale is not None and "replicas" in scale:
        return int(scale["replicas"]), 0
    if scale is not None and "weight" in scale:
        return None, int(scale["weight"])
    return None, current_set_weight(rollout)


def routed_counts(rollout: Rollout, weights: Json | None) -> tuple[int, int]:
    """Canary and stable when a router shifts traffic.

    The stable stays whole, unless `dynamicStableScale`: then it follows its weight, the higher of the one it has and
    the one it will have, and an aborted canary keeps what its weight needs.
    """
    named, weight = replicas_or_weight(rollout)
    canary = named if named is not None else _at_least(rollout, _share(rollout, weight))
    if not rollout.dynamic:
        return canary, rollout.replicas
    stable = _share(rollout, 100 - weight)
    if weights is not None:
        stable = max(stable, _share(rollout, weights["stable"]["weight"]))
        if rollout.aborted:
            canary = max(canary, _share(rollout, weights["canary"]["weight"]))
    return _at_least(rollout, canary), _at_least(rollout, stable)


def basic_counts(
    rollout: Rollout, new: ReplicaSet | None, stable: ReplicaSet | None, others: Sequence[ReplicaSet]
) -> tuple[int, int]:
    """Canary and stable when pods are the traffic: towards the weight, within `maxSurge` and `maxUnavailable`."""
    surge, unavailable = rollout.surge_and_unavailable
    has_stable = stable is not None and (new is None or new.name != stable.name)
    wished_new, wished_stable = _approximate(rollout, replicas_or_weight(rollout)[1], surge)
    if not has_stable:
        wished_new, wished_stable = rollout.replicas, 0
    count_new = new.replicas if new else 0
    count_stable = stable.replicas if stable and has_stable else 0
    room = rollout.replicas + surge - count_new - count_stable - sum(rs.replicas for rs in others)
    if has_stable and count_stable < wished_stable and room > 0:
        grown = min(wished_stable, count_stable + room)
        room, count_stable = room - (grown - count_stable), grown
    if new and count_new < wished_new and room > 0:
        count_new = min(wished_new, count_new + room)
    if any(rs.replicas for rs in others):
        return count_new, count_stable  # those go first
    least = rollout.replicas - unavailable
    growing = new is None or wished_new >= new.replicas
    spare = _countable(new, whole=not growing) + (_countable(stable, whole=growing) if has_stable else 0) - least
    if spare <= 0:
        return count_new, count_stable
    if not growing and new and new.replicas > wished_new:
        count_new = max(wished_new, new.replicas - spare)
    elif growing and stable and has_stable and stable.replicas > wished_stable:
        count_stable = max(wished_stable, stable.replicas - spare)
    return count_new, count_stable


def canary_counts(
    rollout: Rollout,
    new: ReplicaSet | None,
    stable: ReplicaSet | None,
    others: Sequence[ReplicaSet],
    weights: Json | None,
) -> tuple[int, int]:
    if rollout.traffic is None:
        return basic_counts(rollout, new, stable, others)
    return routed_counts(rollout, weights)


def at_desired_counts(
    rollout: Rollout,
    new: ReplicaSet | None,
    stable: ReplicaSet | None,
    others: Sequence[ReplicaSet],
    weights: Json | None,
) -> bool:
    """Whether a step's pods are there: the canary's available, the stable's created, old ones gone if they serve."""
    canary, whole = canary_counts(rollout, new, stable, others, weights)
    if new is None or new.replicas != canary or new.available < needed(rollout, canary) or new.available > canary:
        return False
    if (rollout.traffic is None or not rollout.dynamic) and (
        stable is None or not whole == stable.replicas == stable.actual
    ):
        return False
    return rollout.traffic is not None or not any(rs.available for rs in others)


def needed(rollout: Rollout, count: int) -> int:
    """How many of `count` pods must be available before a step goes on (`replicaProgressThreshold`); all by default."""
    threshold = (rollout.canary or {}).get("replicaProgressThreshold")
    if threshold is None:
        return count
    value = int(threshold["value"])
    return min(count, value if threshold["type"] == "Pods" else math.ceil(count * value / 100))


def preview_count(rollout: Rollout, active: ReplicaSet | None, new: ReplicaSet) -> int:
    """Pods of a blue-green's new replica set: `previewReplicaCount` until it may grow to the whole."""
    preview = rollout.strategy.get("previewReplicaCount")
    if preview is None or active is None or active.name == new.name or rollout.promoting_fully:
        return rollout.replicas
    resumed = not rollout.paused and not rollout.status.get("pauseConditions")
    past = rollout.status.get("blueGreen", {}).get("scaleUpPreviewCheckPoint")
    grows = new.hash == rollout.current_hash and resumed and past
    return rollout.replicas if grows else int(preview)


def _share(rollout: Rollout, weight: int) -> int:
    return math.ceil(weight * rollout.replicas / 100)


def _at_least(rollout: Rollout, count: int) -> int:
    least = int((rollout.canary or {}).get("minPodsPerReplicaSet", 0))
    return max(count, least) if count and rollout.traffic is not None else count


def _countable(rs: ReplicaSet | None, *, whole: bool) -> int:
    """`GetReplicasForScaleDown`: wished pods count where availability does not matter, or more are available."""
    if rs is None:
        return 0
    return rs.replicas if whole or rs.replicas < rs.available else rs.available


def _approximate(rollout: Rollout, weight: int, surge: int) -> tuple[int, int]:
    """The counts closest to the weight, with one extra pod where surge allows, and none at 0 that should serve."""
    whole = rollout.replicas
    if whole == 0:
        return 0, 0
    up, down = math.ceil(whole * weight / 100), math.floor(whole * weight / 100)
    may_be_zero = weight in (0, 100) or (whole == 1 and surge == 0)
    options: list[tuple[int, int]] = []
    if up < whole or may_be_zero:
        options.append((up, whole))
    if not _tied(weight, whole) and (down or may_be_zero):
        options.append((down, whole))
    if surge > 0:
        options.append((up, whole + 1))
        if not _tied(weight, whole + 1) and (down or may_be_zero):
            options.append((down, whole + 1))
    if not options:
        return 0, whole
    canary, total = min(options, key=lambda option: abs(option[0] * 100 / option[1] - weight))
    return canary, total - canary


def _tied(weight: int, total: int) -> bool:
    return math.modf(total * weight / 100)[0] == 0.5
