"""`restartAt`: every pod older than it is evicted, a few at a time.

Upstream: `rollout/restart.go`.
"""

from __future__ import annotations

from datetime import timedelta

from fakes.argo.objects import moment_of
from fakes.argo.pods import is_available
from fakes.argo.reconciliation import Reconciliation

from rollouts.kube.resources import PODS

_AGAIN = timedelta(seconds=30)


def restart_pods(r: Reconciliation) -> None:
    """Evict as many as may be missing, at least one; `restartedAt` is set once none is left to evict."""
    wanted = r.rollout.spec.get("restartAt")
    if not wanted or wanted == r.rollout.status.get("restartedAt"):
        return
    at = moment_of(wanted)
    if r.now < at:
        r.world.wake(at)
        return
    first = {rs.name: number for number, rs in enumerate((r.stable, r.new)) if rs is not None}
    ordered = sorted(r.all, key=lambda rs: first.get(rs.name, len(first)))
    pods = [pod for rs in ordered for pod in r.world.index.owned(PODS, rs.body)]
    seconds = int(r.rollout.spec.get("minReadySeconds", 0))
    available = sum(is_available(pod, seconds, r.now) for pod in pods)
    whole = max(r.rollout.replicas, sum(rs.replicas for rs in r.all))
    spare = available - (whole - max(r.rollout.surge_and_unavailable[1], 1))
    old = [pod for pod in pods if moment_of(pod["metadata"]["creationTimestamp"]) < at]
    for pod in old[: max(spare, 0)]:
        r.world.delete(pod)
    if len(old) > max(spare, 0):
        r.world.wake(r.now + _AGAIN)
    else:
        r.status["restartedAt"] = wanted
