"""Whether the traffic plugin loads that the Rollout names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import yaml

from rollouts.doctor.checking import of_rollout
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import at, last_written, said, time_at
from rollouts.doctor.strategy import ago, plugins
from rollouts.kube.model import Json
from rollouts.kube.resources import EVENTS

CONFIG_UNREADABLE = Ailment(
    code="plugin-config-unreadable",
    severity=Severity.ERROR,
    cause="argo-rollouts-config is not the list that the controller expects: it ends at its next start",
    cure="write trafficRouterPlugins as a list of entries with `name: NAMESPACE/PLUGIN` and `location: https://...` "
    "or `file://...`",
)
PLUGIN_UNKNOWN = Ailment(
    code="plugin-unknown",
    severity=Severity.ERROR,
    cause="the Rollout names a plugin that argo-rollouts-config does not list under just that name",
    cure="list it in trafficRouterPlugins under the Rollout's name for it, and restart the controller",
)
PLUGIN_ADDED_LATER = Ailment(
    code="plugin-added-later",
    severity=Severity.WARNING,
    cause="the controller reads argo-rollouts-config when it starts and never again; it runs since before the change",
    cure="restart the controller: kubectl rollout restart",
)
PLUGIN_FAILS = Ailment(
    code="plugin-fails",
    severity=Severity.ERROR,
    cause="the plugin's process does not start or does not answer: no file at its location (a 404 page is saved as the "
    "program), another processor's binary, or no access to routes. `exec: Stdout already set` hides the first failure",
    cure="check the plugin's location and checksum in argo-rollouts-config and the controller's RBAC for routes; "
    "restart the controller",
)
AILMENTS = (CONFIG_UNREADABLE, PLUGIN_UNKNOWN, PLUGIN_ADDED_LATER, PLUGIN_FAILS)

_NAME = re.compile(r"[a-zA-Z0-9-]+/[a-zA-Z0-9_.-]+")
"""As `utils/config` of Argo Rollouts checks it when the controller starts."""
_LOCATION = re.compile(r"(https?|file)://.+")

RECENT = timedelta(minutes=30)
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
    return last is None or snapshot.now - last < RECENT


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


CHECKS = (configured, answering)
