"""Checks of what surrounds a Rollout: whose the objects are, definitions, rights, clocks, policies, the controller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from rollouts.argo.model import TIMED_OUT, HealthState, Rollout, health_of
from rollouts.doctor.model import Observation, Snapshot, Unread, error, note, warning
from rollouts.kube.objects import CRASH_LOOP, at, condition, container_states, is_ready, name_of, said, time_at
from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES, EVENTS
from tidegate.core.model import Json
from tidegate.core.names import WOKEN


@error(
    "not-ours",
    cause="objects of somebody else have the names that this delivery would use: a delivery is refused before it "
    "writes anything, and they serve whom they serve",
    remediation="name a Rollout of others at `fleet.rollout`, give the delivery another "
    "`metadata.name` or `fleet.namespace`, or let their owner delete them",
)
def _not_ours(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if found := snapshot.foreign_objects:
        count = f"{len(found)} object{'s' if len(found) > 1 else ''}"
        yield f"{count} of others where {snapshot.target.delivery} would have its own", *map(str, found)


@error(
    "crd-missing",
    cause="Argo Rollouts, the Gateway API, Istio or the Prometheus Operator is not installed, or its definitions do "
    "not serve the version that tidegate speaks; an upgrade may have removed them",
    remediation="install the definitions of the version that the controller runs",
)
def _crd_missing(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for kind in snapshot.objects:
        if snapshot.unread(kind) is Unread.ABSENT:
            yield f"this cluster knows no {kind.plural}.{kind.group}", f"needed: {kind.kind} of {kind.api_version}"


@error(
    "access-denied",
    cause="the credentials of this region's context may not do what a delivery has to do",
    remediation="bind them to the Role that `tidegate rollout render` writes",
)
def _access_denied(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if denied := snapshot.denied:
        what = f"{len(denied)} of {len(snapshot.target.rights)} rights are missing in namespace {snapshot.namespace}"
        yield what, *(f"may not {right}" for right in denied)


TOLERATED_SKEW = timedelta(seconds=5)
"""Less than a scrape interval; the Date header itself is in whole seconds."""


@warning(
    "clock-skew",
    cause="this machine's clock and the API server's differ: windows of evidence and deadlines are off by as much",
    remediation="let both follow one time server",
)
def _clock_skew(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    skew = snapshot.skew
    if skew is not None and abs(skew) > TOLERATED_SKEW:
        which = "ahead of" if skew > timedelta() else "behind"
        seconds = abs(skew).total_seconds()
        yield f"the API server's clock is {seconds:.0f} s {which} this machine's", "its Date header"


@warning(
    "admission-differs",
    cause="RBAC says which kinds tidegate may write and not what is in them; without the policies of this spec and "
    "trust file, whoever has its token can run any pod of the namespace",
    remediation="as an administrator, apply `tidegate rollout render --part setup`; it needs Kubernetes 1.30",
)
def _admission_differs(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    kinds = [kind for kind in (ADMISSION_POLICIES, ADMISSION_BINDINGS) if snapshot.unread(kind) != Unread.FORBIDDEN]
    wanted = [(kind, each) for kind in kinds for each in snapshot.target.rendered(kind)]
    found = {said(each): _difference(each["spec"], snapshot.named(kind, name_of(each))) for kind, each in wanted}
    if wrong := {name: why for name, why in found.items() if why}:
        what = f"{len(wrong)} of {len(wanted)} objects that hold tidegate to its own are missing or differ"
        yield what, *(f"{name} {why}" for name, why in wrong.items())


def _difference(wanted: Json, live: Json | None) -> str:
    """Fields that are not as rendered, with what narrows a policy or a binding; empty when there are none."""
    if live is None:
        return "is not there"
    spec: Json = at(live, "spec", default={})
    fields = [name for name in {**wanted, **spec} if not _covers(wanted.get(name), spec.get(name))]
    if at(spec, "matchConstraints", "excludeResourceRules"):
        fields.append("matchConstraints.excludeResourceRules")
    return f"differs in {', '.join(fields)}" if fields else ""


def _covers(wanted: Any, live: Any) -> bool:
    """Whether all that is wanted is so; a server adds fields with their defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers(part, live.get(key)) for key, part in wanted.items())
    if isinstance(wanted, list):
        same_length = isinstance(live, list) and len(wanted) == len(live)
        return same_length and all(map(_covers, wanted, live))
    return bool(wanted == live)


MANY_RESTARTS = 5
"""With a restart within `RECENT_RESTART`: more than an eviction or an upgrade explains."""
RECENT_RESTART = timedelta(hours=1)


@error(
    "controller-absent",
    cause="no pod of the controller is ready, or it ends soon after each start, most often at a traffic plugin that "
    "it cannot download: nobody acts on Rollouts, and their status stays what it was",
    remediation="install the controller, or correct what its last words or its Deployment name; "
    "--controller-namespace says where it is",
)
def _controller_absent(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    pods = snapshot.controller_pods
    crashing = [pod for pod in pods or () if any(_crashes(snapshot, state) for state in container_states(pod))]
    for pod in crashing:
        words = [word for state in container_states(pod) for word in last_end(state)]
        yield f"the controller's pod {name_of(pod)} crashes", *words
    if crashing or pods is None or any(map(is_ready, pods)) or runs_elsewhere(snapshot):
        return
    seen = [f"{said(pod)} is not ready" for pod in pods] or ["no pod labelled app.kubernetes.io/name=argo-rollouts"]
    yield f"no Argo Rollouts controller runs in namespace {snapshot.target.controller_namespace}", *seen


def runs_elsewhere(snapshot: Snapshot) -> bool:
    """Whether nothing of it is in its namespace, and the status follows the Rollout: in hosted control planes."""
    followed = snapshot.rollout and health_of(snapshot.rollout, now=snapshot.now).state is not HealthState.STUCK
    return snapshot.controller_pods == () and not snapshot.controller_deployed and bool(followed)


def _crashes(snapshot: Snapshot, state: Json) -> bool:
    ended = time_at(state, "lastState", "terminated", "finishedAt")
    recent = ended is not None and snapshot.now - ended < RECENT_RESTART
    many = int(at(state, "restartCount", default=0)) >= MANY_RESTARTS
    return at(state, "state", "waiting", "reason") == CRASH_LOOP or (recent and many)


def last_end(state: Json) -> Iterator[str]:
    """How a container ended last, and the last line that it left."""
    ended = at(state, "lastState", "terminated", default={})
    yield (
        f"container {state.get('name')}: {state.get('restartCount', 0)} restarts, last end: "
        f"{ended.get('reason', 'unknown')}, exit code {ended.get('exitCode', 'unknown')}"
    )
    if ended.get("message"):
        yield str(ended["message"]).strip().splitlines()[-1]


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
    cause="the traffic plugin is not listed in argo-rollouts-config under the Rollout's name for it, or its process "
    "does not start or answer: no file at its location (a 404 page saved as the program), another processor's "
    "binary, or no access to routes; `exec: Stdout already set` hides the first failure",
    remediation="check the plugin's name, location and checksum in argo-rollouts-config and the controller's RBAC for "
    "routes; restart the controller, which reads the ConfigMap only when it starts",
)
def _plugin_fails(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    if not at(rollout, "spec", "strategy", "canary", "trafficRouting", "plugins"):
        return
    told = list[str]()
    for event in snapshot.all(EVENTS):
        last, of = time_at(event, "lastTimestamp") or time_at(event, "eventTime"), event.get("involvedObject") or {}
        recent = last is None or snapshot.now - last < RECENT_EVENT
        ours = (of.get("kind"), of.get("name")) == ("Rollout", snapshot.target.delivery)
        if recent and ours and event.get("type") == "Warning":
            told.append(str(event.get("message") or ""))
    if words := [line for line in (*told, *snapshot.controller_log) if _PLUGIN_FAILURE.search(line)]:
        yield f"a traffic plugin of {said(rollout)} fails", *words


SLACK = timedelta(minutes=2)
"""Between a deadline and the controller's word that it has passed."""


@error(
    "no-progress",
    cause="new pods did not become available within progressDeadlineSeconds; or the controller does not react or says "
    "Progressing for longer than that: it fails before it writes the status, most often at a plugin that does not load",
    remediation="find out why pods do not become ready; read the controller's log for this Rollout, correct what it "
    "names, and restart the controller; then `kubectl argo rollouts retry rollout` or `undo`",
)
def _no_progress(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    if not rollout:
        return
    health = health_of(rollout, now=snapshot.now)
    if health.state is HealthState.STUCK:
        observed = at(rollout, "status", "observedGeneration", default="none")
        generations = f"generation {rollout['metadata']['generation']}, observed {observed}"
        what = f"{said(rollout)}: the controller does not react"
        yield what, health.message, generations, health.cause, *snapshot.controller_log
        return
    ro, progressing = Rollout(rollout), condition(rollout, "Progressing") or {}
    reason, since = progressing.get("reason"), time_at(progressing, "lastUpdateTime")
    waits = ro.in_progress and not (ro.aborted or ro.pause_conditions or ro.paused_by_spec)
    if not waits or since is None or reason in {"NewReplicaSetAvailable", "RolloutPaused", "RolloutAborted"}:
        return
    deadline = timedelta(seconds=int(at(rollout, "spec", "progressDeadlineSeconds", default=600)))
    if reason == TIMED_OUT or snapshot.now - since > deadline + SLACK:
        yield (
            f"{said(rollout)} has said {reason} at {step_of(ro)} for {snapshot.since(since)}",
            str(progressing.get("message", "")),
            f"progressDeadlineSeconds: {deadline.total_seconds():.0f}",
            *snapshot.controller_log,
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
def _write_lost(_: Snapshot, rollout: Json) -> Iterator[Observation]:
    if woken := at(rollout, "metadata", "annotations", WOKEN):
        yield f"the controller lost a write to {said(rollout)}", f"{WOKEN}: {woken}"
