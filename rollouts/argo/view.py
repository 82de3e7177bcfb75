"""What `tidegate rollout get` and `list` show of a rollout: numbers, images, and the tree of what it owns.

The same for a terminal and for JSON. The order and the icons are those of kubectl's plugin (`cmd/get/get_rollout.go`,
`info/`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from rollouts.argo.model import Rollout, hash_of, parse_time, revision_of, step_text
from rollouts.argo.state import RolloutHealth, RolloutPhase, phase_of
from rollouts.argo.workload import selector_of, workload_of
from rollouts.kube.model import Resource
from rollouts.kube.pods import pod_status
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import ANALYSIS_RUNS, EXPERIMENTS, PODS, REPLICA_SETS, ROLLOUTS
from tidegate.core.model import Json, Value

Objects = tuple[Json, ...]


class OwnedResources(Value):
    """A Rollout and the objects that it may own, as they were read; some may belong to other rollouts."""

    rollout: Json
    workload: Json | None = None
    """What `spec.workloadRef` names."""
    replica_sets: Objects = ()
    pods: Objects = ()
    analysis_runs: Objects = ()
    experiments: Objects = ()


async def read_owned_resources(cluster: ClusterReader, name: str) -> OwnedResources:
    """Read it all at about the same time.

    Raises:
        NotFound: when there is no such rollout.
    """
    rollout = await cluster.get(ROLLOUTS, name)
    workload = await workload_of(cluster, rollout)
    labels = selector_of(rollout, workload)

    async def listed(resource: Resource, labels: str = "") -> Objects:
        return (await cluster.list(resource, labels=labels)).items

    replica_sets, pods, runs, experiments = await asyncio.gather(
        listed(REPLICA_SETS, labels), listed(PODS, labels), listed(ANALYSIS_RUNS), listed(EXPERIMENTS)
    )
    return OwnedResources(
        rollout=rollout,
        workload=workload,
        replica_sets=replica_sets,
        pods=pods,
        analysis_runs=runs,
        experiments=experiments,
    )


GOOD, BAD, WARNING, MOVING, WAITING, HELD, IDLE, UNKNOWN = "✔", "✖", "⚠", "◌", "◷", "॥", "•", "?"

ROLLOUT_ICONS = {
    "healthy": GOOD,
    "degraded": BAD,
    "paused": HELD,
    "paused-inconclusive": UNKNOWN,
    "progressing": MOVING,
    "stuck": WARNING,
}
REPLICA_SET_ICONS = {"Healthy": GOOD, "Progressing": MOVING, "ReplicaFailure": BAD, "ScaledDown": IDLE}
ANALYSIS_ICONS = {
    "Successful": GOOD,
    "Inconclusive": UNKNOWN,
    "Failed": BAD,
    "Error": WARNING,
    "Running": MOVING,
    "Pending": WAITING,
}
POD_ICONS = {
    "Pending": MOVING,
    "Terminating": MOVING,
    "ContainerCreating": MOVING,
    "Running": GOOD,
    "Completed": GOOD,
    "Failed": BAD,
    "InvalidImageName": BAD,
    "CrashLoopBackOff": BAD,
    "ImagePullBackOff": WARNING,
    "RegistryUnavailable": WARNING,
    "Unknown": UNKNOWN,
}

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
AGES = (
    (120, "s", ""),
    (600, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86400, "d", "h"),
    (2 * 365 * 86400, "d", ""),
    (8 * 365 * 86400, "y", "d"),
    (None, "y", ""),
)
"""Below so many seconds an age is told in this unit, with the rest in that one."""


def pod_icon(status: str) -> str:
    """`podIcon`."""
    if status.startswith("Init:"):
        return MOVING
    if status.startswith(("Signal:", "ExitCode:")):
        return BAD
    if status.endswith("Error") or status.startswith("Err"):
        return WARNING
    return POD_ICONS.get(status, " ")


def short_age(age: timedelta) -> str:
    """`HumanDuration`: two units at most, and the smaller one only while it matters."""
    seconds = max(int(age.total_seconds()), 0)
    _, unit, smaller = next(row for row in AGES if row[0] is None or seconds < row[0])
    whole, rest = divmod(seconds, SECONDS[unit])
    part = rest // SECONDS[smaller] if smaller else 0
    return f"{whole}{unit}{part}{smaller}" if part else f"{whole}{unit}"


SCALE_DOWN_DEADLINE = "scale-down-deadline"
"""The annotation that says until when the pods of an old ReplicaSet are kept."""


class TreeNode(Value):
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
    children: tuple[TreeNode, ...] = ()


def tree_of(owned: OwnedResources, health: RolloutHealth, *, now: datetime) -> TreeNode:
    """The rollout at the root, the newest revision first."""
    ro = Rollout(owned.rollout)
    own = [
        *_by_age(_owned(ro.object, owned.replica_sets)),
        *_by_age(_owned(ro.object, owned.experiments)),
        *_by_age(_owned(ro.object, owned.analysis_runs)),
    ]
    revisions = sorted({revision_of(each) for each in own}, reverse=True)
    return TreeNode(
        kind="Rollout",
        name=ro.name,
        status=health.state,
        mark=ROLLOUT_ICONS[health.state],
        created=_created(ro.object),
        children=tuple(
            TreeNode(
                kind="Revision",
                name=f"revision:{revision}",
                children=tuple(_branch(each, ro, owned, now) for each in own if revision_of(each) == revision),
            )
            for revision in revisions
        ),
    )


def roles_of(ro: Rollout, replica_set: Json) -> tuple[str, ...]:
    """What a ReplicaSet is to the rollout: stable and canary, or stable, active and preview."""
    pod_hash = hash_of(replica_set)
    if not pod_hash:
        return ()
    stable = ("stable",) if pod_hash == ro.stable_hash else ()
    if ro.blue_green is None:
        return stable or (("canary",) if pod_hash == ro.pod_hash else ())
    services = ro.status.get("blueGreen") or {}
    if pod_hash == services.get("activeSelector"):
        return (*stable, "active")
    return (*stable, "preview") if pod_hash == services.get("previewSelector") else stable


def _branch(thing: Json, ro: Rollout, owned: OwnedResources, now: datetime) -> TreeNode:
    match thing.get("kind"):
        case "ReplicaSet":
            return _replica_set(thing, owned, roles_of(ro, thing), now)
        case "Experiment":
            return _experiment(thing, owned, now)
        case _:
            return _analysis_run(thing)


def _replica_set(thing: Json, owned: OwnedResources, roles: tuple[str, ...], now: datetime) -> TreeNode:
    status = _replica_set_status(thing)
    until = parse_time((thing["metadata"].get("annotations") or {}).get(SCALE_DOWN_DEADLINE))
    delay = (f"delay:{short_age(until - now) if until > now else 'passed'}",) if until else ()
    return TreeNode(
        kind="ReplicaSet",
        name=thing["metadata"]["name"],
        status=status,
        mark=REPLICA_SET_ICONS[status],
        created=_created(thing),
        info=(*roles, *delay),
        children=tuple(_pod(pod) for pod in _by_age(_owned(thing, owned.pods))),
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


def _pod(pod: Json) -> TreeNode:
    status = pod_status(pod)
    ready = f"ready:{status.ready}/{status.containers}"
    return TreeNode(
        kind="Pod",
        name=pod["metadata"]["name"],
        status=status.word,
        mark=pod_icon(status.word),
        created=_created(pod),
        info=(ready, f"restarts:{status.restarts}") if status.restarts else (ready,),
    )


def _analysis_run(run: Json) -> TreeNode:
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
    return TreeNode(
        kind="AnalysisRun",
        name=run["metadata"]["name"],
        status=phase,
        mark=ANALYSIS_ICONS.get(phase, " "),
        created=_created(run),
        info=tuple(f"{ANALYSIS_ICONS[phase]} {count}" for phase, count in counts.items() if count),
        children=tuple(_jobs(results)),
    )


def _jobs(results: Sequence[Json]) -> Iterable[TreeNode]:
    """The jobs of measurements that are made by one (`job-name`)."""
    for result in results:
        for measurement in result.get("measurements") or []:
            name, phase = (measurement.get("metadata") or {}).get("job-name"), str(measurement.get("phase", ""))
            if name:
                begun = parse_time(measurement.get("startedAt"))
                yield TreeNode(kind="Job", name=name, status=phase, mark=ANALYSIS_ICONS.get(phase, " "), created=begun)


def _experiment(thing: Json, owned: OwnedResources, now: datetime) -> TreeNode:
    phase = str((thing.get("status") or {}).get("phase") or "Pending")
    return TreeNode(
        kind="Experiment",
        name=thing["metadata"]["name"],
        status=phase,
        mark=ANALYSIS_ICONS.get(phase, " "),
        created=_created(thing),
        children=(
            *(_replica_set(each, owned, (), now) for each in _by_age(_owned(thing, owned.replica_sets))),
            *(_analysis_run(each) for each in _by_age(_owned(thing, owned.analysis_runs))),
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
    return parse_time(thing["metadata"].get("creationTimestamp"))


class RolloutSummary(Value):
    """One rollout in a list (`cmd/list/rollloutinfo.go`)."""

    name: str
    namespace: str
    strategy: str
    """`canary` or `blue-green`."""
    phase: RolloutPhase
    """Argo Rollouts' word."""
    health: RolloutHealth
    step: int | None = None
    """The index of the running step; as many as there are steps when all are done. None without steps."""
    steps: int = 0
    set_weight: int | None = None
    """Percent of users that its steps ask for; None for blue-green."""
    actual_weight: int | None = None
    """Percent that the traffic router says it set, or that pods stand for without one."""
    desired: int
    current: int
    updated: int
    ready: int
    available: int


class RunningImage(Value):
    """An image that runs, and as what."""

    image: str
    roles: tuple[str, ...]


class RolloutView(RolloutSummary):
    """One rollout in full."""

    running_step: str = ""
    """Such as `setWeight: 25`; empty when none runs."""
    images: tuple[RunningImage, ...]
    tree: TreeNode


def rollout_summary(
    rollout: Json, health: RolloutHealth, *, replica_sets: Sequence[Json] = (), workload: Json | None = None
) -> RolloutSummary:
    """The numbers of a rollout; without its ReplicaSets the actual weight of an unrouted canary is not known."""
    ro = Rollout(rollout)
    return RolloutSummary(
        name=ro.name,
        namespace=ro.namespace,
        strategy="blue-green" if ro.blue_green is not None else "canary",
        phase=phase_of(rollout, workload=workload).phase,
        health=health,
        step=ro.step_index if ro.steps else None,
        steps=len(ro.steps),
        set_weight=None if ro.canary is None else ro.set_weight,
        actual_weight=_actual_weight(ro, replica_sets),
        desired=ro.replicas,
        current=ro.status.get("replicas") or 0,
        updated=ro.status.get("updatedReplicas") or 0,
        ready=ro.status.get("readyReplicas") or 0,
        available=ro.status.get("availableReplicas") or 0,
    )


def rollout_view(owned: OwnedResources, health: RolloutHealth, *, now: datetime) -> RolloutView:
    """All of it."""
    ro = Rollout(owned.rollout)
    row = rollout_summary(owned.rollout, health, replica_sets=owned.replica_sets, workload=owned.workload)
    return RolloutView(
        **dict(row),
        running_step=step_text(ro.step) if ro.step and ro.in_progress else "",
        images=_images(ro, owned.replica_sets),
        tree=tree_of(owned, health, now=now),
    )


def _actual_weight(ro: Rollout, replica_sets: Sequence[Json]) -> int | None:
    """`NewRolloutInfo`: what the router wrote, else what the steps ask for; without a router, by available pods."""
    if ro.canary is None:
        return None
    if ro.step is None:
        return 100
    available = ro.status.get("availableReplicas") or 0
    if not available:
        return 0
    if ro.canary.get("trafficRouting") is None:
        canary = [each for each in replica_sets if "canary" in roles_of(ro, each)]
        return sum((each.get("status") or {}).get("availableReplicas") or 0 for each in canary) * 100 // available
    weights = (ro.status.get("canary") or {}).get("weights") or {}
    return int((weights.get("canary") or {}).get("weight", ro.set_weight))


def _images(ro: Rollout, replica_sets: Sequence[Json]) -> tuple[RunningImage, ...]:
    roles: dict[str, set[str]] = {}
    for each in replica_sets:
        if not (each.get("status") or {}).get("replicas"):
            continue
        for container in each["spec"]["template"]["spec"].get("containers") or []:
            roles.setdefault(container.get("image", ""), set()).update(roles_of(ro, each))
    return tuple(RunningImage(image=image, roles=tuple(sorted(found))) for image, found in sorted(roles.items()))
