"""Checks of Argo Rollouts' controller: whether it runs, has its plugins, and reconciles this Rollout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import yaml

from rollouts.argo.model import Rollout
from rollouts.argo.state import STUCK_AFTER_SECONDS, HealthState, health_of, pending_reaction
from rollouts.doctor.model import Observation, Snapshot, error, note
from rollouts.doctor.strategy import plugins
from rollouts.kube.objects import at, condition, container_states, is_ready, name_of, said, time_at
from rollouts.kube.pods import CRASH_LOOP
from rollouts.kube.resources import EVENTS, ROLLOUTS
from tidegate.core.model import Json
from tidegate.core.names import WOKEN

MANY_RESTARTS = 5
"""With a restart within `RECENT_RESTART`: more than an eviction or an upgrade explains."""
RECENT_RESTART = timedelta(hours=1)

LEASE_HELD = timedelta(minutes=1)
"""Four times the controller's own default."""


@error(
    "controller-absent",
    cause="no pod of the controller is ready, or it ends soon after each start, most often at a traffic plugin that "
    "it cannot download: nobody acts on Rollouts, and their status stays what it was",
    remediation="install the controller, or correct what its last words or its Deployment name; "
    "--controller-namespace says where it is",
)
def _controller_absent(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    controller = snapshot.controller
    crashing = [pod for pod in controller.pods if _crashes(snapshot, pod)]
    for pod in crashing:
        words = [word for state in container_states(pod) for word in last_end(state)]
        yield f"the controller's pod {name_of(pod)} crashes", *words
    if crashing or not controller.readable or any(map(is_ready, controller.pods)) or runs_elsewhere(snapshot):
        return
    seen = [f"{said(one)}: {at(one, 'status', 'availableReplicas', default=0)} ready" for one in controller.deployments]
    what = f"no Argo Rollouts controller runs in namespace {controller.namespace}"
    yield what, *(seen or ["no pod labelled app.kubernetes.io/name=argo-rollouts"])


def runs_elsewhere(snapshot: Snapshot) -> bool:
    """Whether nothing of the controller is in its namespace, and there is what only a controller writes.

    That is a lease that is renewed, or a status that follows its Rollout. In hosted control planes it is no pod.
    """
    controller = snapshot.controller
    if not controller.readable or controller.here:
        return False
    renewed = time_at(controller.lease or {}, "spec", "renewTime")
    # Another's Rollout at rest says nothing of a controller that leaves ours alone.
    rollouts = (snapshot.rollout,) if snapshot.rollout else snapshot.all(ROLLOUTS)
    held = renewed is not None and snapshot.now - renewed <= LEASE_HELD
    return held or any(_is_followed(snapshot, rollout) for rollout in rollouts)


def _is_followed(snapshot: Snapshot, rollout: Json) -> bool:
    """Whether its status has taken up the last change, was written after it, or may still be."""
    pending = pending_reaction(rollout)
    if pending is None or pending.since is None:
        return bool(at(rollout, "status", "observedGeneration"))
    conditions = at(rollout, "status", "conditions", default=[])
    written = [time for one in conditions if (time := time_at(one, "lastUpdateTime"))]
    is_new = (snapshot.now - pending.since).total_seconds() <= STUCK_AFTER_SECONDS
    return bool(written) and (is_new or max(written) >= pending.since)


def _crashes(snapshot: Snapshot, pod: Json) -> bool:
    for state in container_states(pod):
        ended = time_at(state, "lastState", "terminated", "finishedAt")
        recent = ended is not None and snapshot.now - ended < RECENT_RESTART
        many = int(at(state, "restartCount", default=0)) >= MANY_RESTARTS
        if at(state, "state", "waiting", "reason") == CRASH_LOOP or (recent and many):
            return True
    return False


def last_end(state: Json) -> Iterator[str]:
    """How a container ended last, and the last line that it left."""
    ended = at(state, "lastState", "terminated", default={})
    yield (
        f"container {state.get('name')}: {state.get('restartCount', 0)} restarts, last end: "
        f"{ended.get('reason', 'unknown')}, exit code {ended.get('exitCode', 'unknown')}"
    )
    if ended.get("message"):
        yield str(ended["message"]).strip().splitlines()[-1]


@error(
    "plugin-unknown",
    cause="the Rollout names a plugin that argo-rollouts-config does not list under exactly that name",
    remediation="list it in trafficRouterPlugins with the Rollout's name for it, and restart the controller, which "
    "reads the ConfigMap only when it starts",
)
def _plugin_unknown(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    controller = snapshot.controller
    # The configuration of a controller that is elsewhere is there too.
    if not controller.readable or controller.config_unread or not (controller.config or controller.here):
        return
    text = at(controller.config, "data", "trafficRouterPlugins", default="")
    try:
        entries = yaml.safe_load(text) or []
        names = [str(at(entry, "name", default="")) for entry in entries] if isinstance(entries, list) else []
        seen = f"listed: {', '.join(names) or 'none'}"
    except yaml.YAMLError as error:
        names, seen = [], f"trafficRouterPlugins is no YAML: {error}"
    for name in plugins(rollout):
        if name not in names:
            yield f"{said(rollout)} names the traffic plugin {name}", seen


_PLUGIN_FAILURE = re.compile(
    r"exec: Stdout already set|unable to find plugin|exec format error|rpc error|connection is shut down|"
    r"failed to (download|find downloaded) plugin|plugin .*(exited|not found|fail)",
    re.IGNORECASE,
)
"""How the controller and hashicorp/go-plugin say it, in events and in the log."""
RECENT_EVENT = timedelta(minutes=30)
"""The controller tries again every 17 min at the latest."""


@error(
    "plugin-fails",
    cause="the plugin's process does not start or answer: no file at its location (a 404 page saved as the program), "
    "another processor's binary, or no access to routes; `exec: Stdout already set` hides the first failure",
    remediation="check the plugin's location and checksum in argo-rollouts-config and the controller's RBAC for "
    "routes; restart the controller",
)
def _plugin_fails(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    if not plugins(rollout):
        return
    told = [
        str(at(event, "message", default=""))
        for event in snapshot.all(EVENTS)
        if at(event, "type") == "Warning"
        and _is_recent(snapshot, event)
        and at(event, "involvedObject", "kind") == "Rollout"
        and at(event, "involvedObject", "name") == snapshot.target.delivery
    ]
    words = [line for line in (*told, *snapshot.controller.log) if _PLUGIN_FAILURE.search(line)]
    if words:
        yield f"a traffic plugin of {said(rollout)} fails", *words


def _is_recent(snapshot: Snapshot, event: Json) -> bool:
    last = time_at(event, "lastTimestamp") or time_at(event, "eventTime")
    return last is None or snapshot.now - last < RECENT_EVENT


DEFAULT_DEADLINE = 600
"""progressDeadlineSeconds of a Rollout that does not say."""
SLACK = timedelta(minutes=2)
"""Between a deadline and the controller's word that it has passed."""
_WAITS_FOR_NOTHING = {"NewReplicaSetAvailable", "RolloutPaused", "RolloutAborted", "ProgressDeadlineExceeded"}


@error(
    "no-progress",
    cause="the controller does not react, or the Rollout says Progressing past its own deadline: the controller "
    "fails before it writes the status, most often at a traffic plugin that does not load",
    remediation="read the controller's log for this Rollout, correct what it names, and restart the controller",
)
def _no_progress(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    if not rollout:
        return
    health = health_of(rollout, now=snapshot.now)
    if health.state is HealthState.STUCK:
        observed = at(rollout, "status", "observedGeneration", default="none")
        generations = f"generation {rollout['metadata']['generation']}, observed {observed}"
        what = f"{said(rollout)}: the controller does not react"
        yield what, health.message, generations, health.cause, *snapshot.controller.log
    else:
        yield from _past_deadline(snapshot, rollout)


def _past_deadline(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    """As `RolloutTimedOut`: an analysis or an experiment may last for days, and a pause waits for nobody."""
    ro, progressing = Rollout(rollout), condition(rollout, "Progressing") or {}
    waits = ro.in_progress and not (ro.aborted or ro.pause_conditions or ro.paused_by_spec)
    since = time_at(progressing, "lastUpdateTime")
    if not waits or since is None or progressing.get("reason") in _WAITS_FOR_NOTHING:
        return
    deadline = timedelta(seconds=int(at(rollout, "spec", "progressDeadlineSeconds", default=DEFAULT_DEADLINE)))
    if snapshot.now - since > deadline + SLACK and not {"analysis", "experiment"} & set(ro.step or {}):
        yield (
            f"{said(rollout)} has said Progressing at {step_of(ro)} for {snapshot.since(since)}",
            f"{progressing.get('reason')}: {progressing.get('message', '')}",
            f"progressDeadlineSeconds: {deadline.total_seconds():.0f}",
            *snapshot.controller.log,
        )


def step_of(ro: Rollout) -> str:
    """Where it is, such as `step 3/8`."""
    return f"step {ro.step_index}/{len(ro.steps)}"


@note(
    "write-lost",
    cause="Argo Rollouts up to 1.9.1 loses about half of the writes that come within 50 ms after its own, those of "
    "`kubectl argo rollouts promote` too: they show and nothing follows (argo-rollouts#3316, #4073, #4694)",
    remediation="install 1.10 or later; until then tidegate writes again by itself, and a promote or abort of "
    "yours that does nothing needs any other write: kubectl annotate rollout NAME woken=1 --overwrite",
)
def _write_lost(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    woken = at(rollout, "metadata", "annotations", WOKEN)
    version = snapshot.controller.version
    if woken and (version is None or version < (1, 10)):
        running = ".".join(map(str, version)) if version else "unknown"
        seen = f"{WOKEN}: {woken}, controller's version: {running}"
        yield f"the controller lost a write to {said(rollout)}", seen


CHECKS = (_controller_absent, _plugin_unknown, _plugin_fails, _no_progress, _write_lost)
