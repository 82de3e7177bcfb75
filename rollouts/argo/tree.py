"""A Rollout as users of kubectl's plugin know it: revisions, and below each its ReplicaSets, pods and analysis runs.

Pure, and the same for a terminal and for JSON. The order is the plugin's (`cmd/get/get_rollout.go`, `info/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rollouts.argo.family import Family
from rollouts.argo.health import Health
from rollouts.argo.marks import ANALYSIS_MARKS, REPLICA_SET_MARKS, ROLLOUT_MARKS, pod_mark, short_age
from rollouts.argo.model import Rollout, as_time, revision_of
from rollouts.argo.pod_status import pod_status
from rollouts.argo.revisions import hash_of
from rollouts.kube.model import Json
from tidegate.core.model import Value

SCALE_DOWN_DEADLINE = "scale-down-deadline"
"""The annotation that says until when the pods of an old ReplicaSet are kept."""


class Node(Value):
    """One line of the tree."""

    kind: str
    """Rollout, Revision, ReplicaSet, Pod, AnalysisRun, Experiment or Job."""
    name: str
    status: str = ""
    mark: str = ""
    """The status as one character."""
    created: datetime | None = None
    info: tuple[str, ...] = ()
    """Such as `stable`, `delay:5m`, `ready:1/1`."""
    children: tuple[Node, ...] = ()


def tree_of(family: Family, health: Health, *, now: datetime) -> Node:
    """The rollout at the root, the newest revision first."""
    seen = Rollout(family.rollout)
    own = [
        *_by_age(_owned(seen.object, family.replica_sets)),
        *_by_age(_owned(seen.object, family.experiments)),
        *_by_age(_owned(seen.object, family.analysis_runs)),
    ]
    revisions = sorted({revision_of(each) for each in own}, reverse=True)
    return Node(
        kind="Rollout",
        name=seen.name,
        status=health.state,
        mark=ROLLOUT_MARKS[health.state],
        created=_created(seen.object),
        children=tuple(
            Node(
                kind="Revision",
                name=f"revision:{revision}",
                children=tuple(_branch(each, seen, family, now) for each in own if revision_of(each) == revision),
            )
            for revision in revisions
        ),
    )


def roles_of(seen: Rollout, replica_set: Json) -> tuple[str, ...]:
    """What a ReplicaSet is to the rollout: stable and canary, or stable, active and preview."""
    pod_hash = hash_of(replica_set)
    if not pod_hash:
        return ()
    stable = ("stable",) if pod_hash == seen.stable_hash else ()
    if seen.blue_green is None:
        return stable or (("canary",) if pod_hash == seen.pod_hash else ())
    services = seen.status.get("blueGreen") or {}
    if pod_hash == services.get("activeSelector"):
        return (*stable, "active")
    return (*stable, "preview") if pod_hash == services.get("previewSelector") else stable


def _branch(thing: Json, seen: Rollout, family: Family, now: datetime) -> Node:
    match thing.get("kind"):
        case "ReplicaSet":
            return _replica_set(thing, family, roles_of(seen, thing), now)
        case "Experiment":
            return _experiment(thing, family, now)
        case _:
            return _analysis_run(thing)


def _replica_set(thing: Json, family: Family, roles: tuple[str, ...], now: datetime) -> Node:
    status = _replica_set_status(thing)
    until = as_time((thing["metadata"].get("annotations") or {}).get(SCALE_DOWN_DEADLINE))
    delay = (f"delay:{short_age(until - now) if until > now else 'passed'}",) if until else ()
    return Node(
        kind="ReplicaSet",
        name=thing["metadata"]["name"],
        status=status,
        mark=REPLICA_SET_MARKS[status],
        created=_created(thing),
        info=(*roles, *delay),
        children=tuple(_pod(pod) for pod in _by_age(_owned(thing, family.pods))),
    )


def _replica_set_status(thing: Json) -> str:
    """`getReplicaSetHealth`."""
    status, wanted = thing.get("status") or {}, (thing.get("spec") or {}).get("replicas")
    if (thing["metadata"].get("generation") or 0) > (status.get("observedGeneration") or 0):
        return "Progressing"
    if any(
        each.get("type") == "ReplicaFailure" and each.get("status") == "True" for each in status.get("conditions") or []
    ):
        return "ReplicaFailure"
    if wanted is not None and (status.get("availableReplicas") or 0) < wanted:
        return "Progressing"
    return "ScaledDown" if wanted == 0 else "Healthy"


def _pod(pod: Json) -> Node:
    status = pod_status(pod)
    ready = f"ready:{status.ready}/{status.containers}"
    return Node(
        kind="Pod",
        name=pod["metadata"]["name"],
        status=status.word,
        mark=pod_mark(status.word),
        created=_created(pod),
        info=(ready, f"restarts:{status.restarts}") if status.restarts else (ready,),
    )


def _analysis_run(run: Json) -> Node:
    status = run.get("status") or {}
    results = status.get("metricResults") or []
    counts = {
        phase: sum(result.get(field) or 0 for result in results)
        for phase, field in (
            ("Successful", "successful"),
            ("Failed", "failed"),
            ("Inconclusive", "inconclusive"),
            ("Error", "error"),
        )
    }
    phase = str(status.get("phase") or "Pending")
    return Node(
        kind="AnalysisRun",
        name=run["metadata"]["name"],
        status=phase,
        mark=ANALYSIS_MARKS.get(phase, " "),
        created=_created(run),
        info=tuple(f"{ANALYSIS_MARKS[phase]} {count}" for phase, count in counts.items() if count),
        children=tuple(_jobs(results)),
    )


def _jobs(results: Sequence[Json]) -> Iterable[Node]:
    """The jobs of measurements that are made by one (`job-name`)."""
    for result in results:
        for measurement in result.get("measurements") or []:
            name, phase = (measurement.get("metadata") or {}).get("job-name"), str(measurement.get("phase", ""))
            if name:
                begun = as_time(measurement.get("startedAt"))
                yield Node(kind="Job", name=name, status=phase, mark=ANALYSIS_MARKS.get(phase, " "), created=begun)


def _experiment(thing: Json, family: Family, now: datetime) -> Node:
    phase = str((thing.get("status") or {}).get("phase") or "Pending")
    return Node(
        kind="Experiment",
        name=thing["metadata"]["name"],
        status=phase,
        mark=ANALYSIS_MARKS.get(phase, " "),
        created=_created(thing),
        children=(
            *(_replica_set(each, family, (), now) for each in _by_age(_owned(thing, family.replica_sets))),
            *(_analysis_run(each) for each in _by_age(_owned(thing, family.analysis_runs))),
        ),
    )


def _owned(owner: Json, things: Iterable[Json]) -> list[Json]:
    uid = owner["metadata"].get("uid")
    return [
        thing
        for thing in things
        if any(each.get("uid") == uid for each in thing["metadata"].get("ownerReferences") or [])
    ]


def _by_age(things: Iterable[Json]) -> list[Json]:
    return sorted(
        things, key=lambda thing: (thing["metadata"].get("creationTimestamp") or "", thing["metadata"]["name"])
    )


def _created(thing: Json) -> datetime | None:
    return as_time(thing["metadata"].get("creationTimestamp"))
