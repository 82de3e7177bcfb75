"""Checks of Argo Rollouts' controller: whether it is up, leads, reconciles this Rollout, and has its plugins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import yaml

from rollouts.argo.model import Rollout
from rollouts.argo.state import (
    STUCK_AFTER_SECONDS,
    UNSCALED,
    likely_cause,
    pending_reaction,
)
from rollouts.doctor.model import Check, Finding, Severity, Snapshot, of_rollout
from rollouts.doctor.strategy import ago, plugins
from rollouts.kube.objects import at, container_states, containers_of, is_ready, last_written, name_of, said, time_at
from rollouts.kube.pods import CRASH_LOOP
from rollouts.kube.resources import EVENTS, ROLLOUTS
from tidegate.core.model import Json
from tidegate.core.names import WOKEN

CONTROLLER_ABSENT = Check(
    code="controller-absent",
    severity=Severity.ERROR,
    cause="no pod of the controller is ready, so nobody acts on Rollouts; their status stays what it was",
    remediation="install the controller, or find out from its Deployment why it has no pods; "
    "--controller-namespace says where it is",
)
CONTROLLER_ELSEWHERE = Check(
    code="controller-elsewhere",
    severity=Severity.NOTE,
    cause="no pod of the controller is in this namespace, and it has left its signs: it runs in another one or "
    "outside the cluster, or it was removed after it had seen all there is",
    remediation="nothing where it runs outside the cluster; else --controller-namespace says where it is, so that its "
    "pods, configuration, metrics and log are looked at too",
)
CONTROLLER_CRASHES = Check(
    code="controller-crashes",
    severity=Severity.ERROR,
    cause="the controller ends soon after each start: most often a traffic plugin that cannot be downloaded, "
    "or a wrong argo-rollouts-config",
    remediation=(
        "mend what its last words name, and restart it; Rollouts look healthy or Progressing meanwhile, and are not"
    ),
)
NO_LEADER = Check(
    code="controller-without-leader",
    severity=Severity.ERROR,
    cause="no replica of the controller holds the lease, so none of them reconciles",
    remediation="look at the controller's access to leases, and at its clock; restart it",
)
NOT_RECONCILED = Check(
    code="rollout-not-reconciled",
    severity=Severity.ERROR,
    cause="the controller fails before it writes the status, most often at a traffic plugin that does not load; "
    "the phase says Progressing for as long as that lasts",
    remediation="read the controller's log for this Rollout, mend what it names, and restart the controller",
)
RECONCILE_ERRORS = Check(
    code="reconcile-errors",
    severity=Severity.ERROR,
    cause="most looks of the controller at this Rollout end in an error, which its status does not show",
    remediation="read the controller's log for this Rollout",
)

WRITE_LOST = Check(
    code="write-lost",
    severity=Severity.NOTE,
    cause="Argo Rollouts up to 1.9.1 loses about half of the writes that come within 50 ms after its own, those of "
    "`kubectl argo rollouts promote` and `abort` too: they show and nothing follows (argo-rollouts#3316, #4073, #4694)",
    remediation="install 1.10 or later; until then tidegate writes again by itself, and a promote or abort of yours "
    "that does nothing needs any other write: kubectl annotate rollout NAME woken=1 --overwrite",
)

LAG = timedelta(seconds=STUCK_AFTER_SECONDS)
"""A controller that is well sees a change within a second or two."""

MANY_RESTARTS = 5
"""With a restart within `RECENT`: more than an eviction or an upgrade explains."""
RECENT = timedelta(hours=1)

LEASE_SECONDS = 15
"""The controller's own default, for a lease that does not say."""
MISSED_LEASES = 4
"""A lease that was not renewed for so many times its length has nobody."""

FEW_LOOKS = 3
"""Fewer tell nothing: the first looks at a new Rollout may meet its Services not yet being there."""


def alive(snapshot: Snapshot) -> Iterator[Finding]:
    """A pod that is ready, and none that crashes; the signs of its work where it is no pod of this namespace."""
    controller = snapshot.controller
    if not controller.readable:
        return
    crashing = [pod for pod in controller.pods if _crashes(snapshot, pod)]
    for pod in crashing:
        yield CONTROLLER_CRASHES.found(f"the controller's pod {name_of(pod)} crashes", *_last_words(pod))
    if crashing or any(is_ready(pod) for pod in controller.pods):
        return
    signs = () if controller.here else tuple(_signs(snapshot))
    if signs:
        yield CONTROLLER_ELSEWHERE.found(
            f"the controller is not in namespace {controller.namespace}, and works", *signs
        )
        return
    seen = [f"{said(deployment)}: {_available(deployment)} ready" for deployment in controller.deployments]
    what = f"no Argo Rollouts controller runs in namespace {controller.namespace}"
    yield CONTROLLER_ABSENT.found(what, *(seen or ["no pod labelled app.kubernetes.io/name=argo-rollouts"]))


def _signs(snapshot: Snapshot) -> Iterator[str]:
    """What only a controller can have written: a lease that is renewed, a status that follows its Rollout."""
    lease = snapshot.controller.lease
    renewed = time_at(lease, "spec", "renewTime") if lease else None
    if lease and renewed and snapshot.now - renewed <= _gone_after(lease):
        holder = at(lease, "spec", "holderIdentity", default="nobody")
        yield f"{said(lease)}: held by {holder}, renewed {ago(renewed, snapshot.now)} ago"
    # Another's Rollout at rest says nothing of a controller that leaves ours alone.
    for rollout in (snapshot.rollout,) if snapshot.rollout else snapshot.all(ROLLOUTS):
        if _followed(snapshot, rollout):
            observed = at(rollout, "status", "observedGeneration")
            yield f"{said(rollout)}: generation {rollout['metadata']['generation']}, observed {observed}"


def _followed(snapshot: Snapshot, rollout: Json) -> bool:
    """Whether its status has taken up the last change, was written after it, or may still be."""
    owed = _owed(snapshot, rollout)
    conditions = at(rollout, "status", "conditions", default=[])
    written = [time for one in conditions if (time := time_at(one, "lastUpdateTime"))]
    if owed is None:
        return bool(at(rollout, "status", "observedGeneration"))
    return bool(written) and (snapshot.now - owed <= LAG or max(written) > owed)


def led(snapshot: Snapshot) -> Iterator[Finding]:
    """A lease that somebody renews. A controller without leader election has none."""
    lease = snapshot.controller.lease
    renewed = time_at(lease, "spec", "renewTime") if lease else None
    if _alone(snapshot) or not (lease and renewed and any(is_ready(pod) for pod in snapshot.controller.pods)):
        return
    if snapshot.now - renewed > _gone_after(lease):
        holder = at(lease, "spec", "holderIdentity", default="nobody")
        yield NO_LEADER.found(
            "no replica of the controller leads",
            f"{said(lease)}: held by {holder}, renewed {ago(renewed, snapshot.now)} ago, lasts {_length(lease)} s",
        )


def _gone_after(lease: Json) -> timedelta:
    return MISSED_LEASES * timedelta(seconds=_length(lease))


def _length(lease: Json) -> int:
    return int(at(lease, "spec", "leaseDurationSeconds", default=LEASE_SECONDS))


def _alone(snapshot: Snapshot) -> bool:
    """Whether it was told to do without leader election; a lease may be left over from before."""
    containers = [one for pod in snapshot.controller.pods for one in containers_of(pod)]
    return any("--leader-elect=false" in at(one, "args", default=[]) for one in containers)


@of_rollout
def reconciled(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """The status belongs to the spec; no condition ever says that it does not."""
    seen = snapshot.controller
    owed = _owed(snapshot, rollout)
    if owed and snapshot.now - owed > LAG:
        observed = at(rollout, "status", "observedGeneration", default="none")
        yield NOT_RECONCILED.found(
            f"{said(rollout)}: the controller has not reacted for {ago(owed, snapshot.now)}",
            f"generation {rollout['metadata']['generation']}, observed {observed}",
            likely_cause(Rollout(rollout)),
            *seen.words,
        )
    elif seen.errors and seen.reconciles and seen.errors >= max(FEW_LOOKS, seen.reconciles / 2):
        yield RECONCILE_ERRORS.found(f"{said(rollout)}: the controller fails at it", *seen.words)


@of_rollout
def heard(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """No delivery had to write again because the controller had not reacted."""
    woken = at(rollout, "metadata", "annotations", WOKEN)
    version = snapshot.controller.version
    if woken and (version is None or version < (1, 10)):
        running = ".".join(map(str, version)) if version else "unknown"
        yield WRITE_LOST.found(
            f"the controller lost a write to {said(rollout)}", f"{WOKEN}: {woken}, controller's version: {running}"
        )


def _owed(snapshot: Snapshot, rollout: Json) -> datetime | None:
    """Since when the controller has not reacted.

    A new version that is observed and never scaled is `progress`'s to tell.
    """
    debt = pending_reaction(rollout)
    return min(debt.since or snapshot.now, snapshot.now) if debt and debt.text != UNSCALED else None


def _crashes(snapshot: Snapshot, pod: Json) -> bool:
    for state in container_states(pod):
        if at(state, "state", "waiting", "reason") == CRASH_LOOP:
            return True
        ended = time_at(state, "lastState", "terminated", "finishedAt")
        recent = ended is not None and snapshot.now - ended < RECENT
        if recent and int(at(state, "restartCount", default=0)) >= MANY_RESTARTS:
            return True
    return False


def _last_words(pod: Json) -> Iterator[str]:
    for state in container_states(pod):
        ended = at(state, "lastState", "terminated", default={})
        yield (
            f"container {state.get('name')}: {at(state, 'restartCount', default=0)} restarts, "
            f"last end: {at(ended, 'reason', default='unknown')}, exit code {at(ended, 'exitCode', default='unknown')}"
        )
        if at(ended, "message"):
            yield str(ended["message"]).strip().splitlines()[-1]


def _available(deployment: Json) -> int:
    return int(at(deployment, "status", "availableReplicas", default=0))


CONFIG_UNREADABLE = Check(
    code="plugin-config-unreadable",
    severity=Severity.ERROR,
    cause="argo-rollouts-config is not the list that the controller expects: it ends at its next start",
    remediation="write trafficRouterPlugins as a list of entries with `name: NAMESPACE/PLUGIN` and `location: "
    "https://...` or `file://...`",
)
PLUGIN_UNKNOWN = Check(
    code="plugin-unknown",
    severity=Severity.ERROR,
    cause="the Rollout names a plugin that argo-rollouts-config does not list under just that name",
    remediation="list it in trafficRouterPlugins under the Rollout's name for it, and restart the controller",
)
PLUGIN_ADDED_LATER = Check(
    code="plugin-added-later",
    severity=Severity.WARNING,
    cause="the controller reads argo-rollouts-config when it starts and never again; it runs since before the change",
    remediation="restart the controller: kubectl rollout restart",
)
PLUGIN_FAILS = Check(
    code="plugin-fails",
    severity=Severity.ERROR,
    cause="the plugin's process does not start or does not answer: no file at its location (a 404 page is saved as the "
    "program), another processor's binary, or no access to routes. `exec: Stdout already set` hides the first failure",
    remediation="check the plugin's location and checksum in argo-rollouts-config and the controller's RBAC for "
    "routes; restart the controller",
)

_NAME = re.compile(r"[a-zA-Z0-9-]+/[a-zA-Z0-9_.-]+")
"""As `utils/config` of Argo Rollouts checks it when the controller starts."""
_LOCATION = re.compile(r"(https?|file)://.+")

RECENT_CONFIG = timedelta(minutes=30)
"""The controller tries again every 17 min at the latest."""

_FAILURE = re.compile(
    r"exec: Stdout already set|unable to find plugin|exec format error|rpc error|connection is shut down|"
    r"failed to (download|find downloaded) plugin|plugin .*(exited|not found|fail)",
    re.IGNORECASE,
)
"""How the controller and hashicorp/go-plugin say it, in events and in the log."""


class _Unreadable(Exception):
    """The controller would refuse its configuration."""


@of_rollout
def configured(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Each plugin of the Rollout is in the ConfigMap, and was when the controller started."""
    wanted, controller = plugins(rollout), snapshot.controller
    if not wanted or not controller.readable or controller.config_unread:
        return
    if controller.config is None and not controller.here:
        # Its configuration is where it is.
        return
    try:
        known = _entries(snapshot)
    except _Unreadable as error:
        yield CONFIG_UNREADABLE.found("argo-rollouts-config cannot be read", str(error))
        return
    for name in wanted:
        if name not in known:
            listed = ", ".join(known) or "none"
            yield PLUGIN_UNKNOWN.found(f"{said(rollout)} names the traffic plugin {name}", f"listed: {listed}")
        else:
            yield from _after_the_start(snapshot, name)


@of_rollout
def answering(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Nothing in events or in the controller's log speaks of a plugin that fails."""
    if not plugins(rollout):
        return
    told = [
        at(event, "message", default="")
        for event in snapshot.all(EVENTS)
        if at(event, "type") == "Warning"
        and _recent(snapshot, event)
        and at(event, "involvedObject", "kind") == "Rollout"
        and at(event, "involvedObject", "name") == snapshot.delivery
    ]
    words = [line for line in (*told, *snapshot.controller.log) if _FAILURE.search(line)]
    if words:
        yield PLUGIN_FAILS.found(f"a traffic plugin of {said(rollout)} fails", *dict.fromkeys(words))


def _recent(snapshot: Snapshot, event: Json) -> bool:
    last = time_at(event, "lastTimestamp") or time_at(event, "eventTime")
    return last is None or snapshot.now - last < RECENT_CONFIG


def _entries(snapshot: Snapshot) -> dict[str, Any]:
    """What the ConfigMap lists, by name.

    Raises:
        _Unreadable: when the controller would refuse it.
    """
    text = at(snapshot.controller.config, "data", "trafficRouterPlugins", default="")
    try:
        listed = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        raise _Unreadable(f"trafficRouterPlugins is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(listed, list):
        raise _Unreadable(f"trafficRouterPlugins is no list but {type(listed).__name__}")
    for entry in listed:
        name, location = at(entry, "name", default=""), at(entry, "location", default="")
        if not _NAME.fullmatch(name):
            raise _Unreadable(f"the name {name!r} is not NAMESPACE/PLUGIN")
        if not _LOCATION.fullmatch(location):
            raise _Unreadable(f"the location {location!r} of {name} is neither http, https nor file")
    return {entry["name"]: entry for entry in listed}


def _after_the_start(snapshot: Snapshot, name: str) -> Iterator[Finding]:
    config = snapshot.controller.config
    written = last_written(config) if config else None
    started = [time for pod in snapshot.controller.pods if (time := _started(pod))]
    if written and started and written > max(started):
        yield PLUGIN_ADDED_LATER.found(
            f"the controller has not read argo-rollouts-config since it was changed, so {name} may not be loaded",
            f"changed {ago(written, snapshot.now)} ago, controller started {ago(max(started), snapshot.now)} ago",
        )


def _started(pod: Json) -> datetime | None:
    """When its container last started; a container that was restarted has read the ConfigMap again."""
    running = time_at(pod, "status", "containerStatuses", 0, "state", "running", "startedAt")
    return running or time_at(pod, "status", "startTime")


CHECKS = (
    CONTROLLER_ABSENT,
    CONTROLLER_ELSEWHERE,
    CONTROLLER_CRASHES,
    NO_LEADER,
    NOT_RECONCILED,
    RECONCILE_ERRORS,
    WRITE_LOST,
    CONFIG_UNREADABLE,
    PLUGIN_UNKNOWN,
    PLUGIN_ADDED_LATER,
    PLUGIN_FAILS,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    alive,
    led,
    reconciled,
    heard,
    configured,
    answering,
)
