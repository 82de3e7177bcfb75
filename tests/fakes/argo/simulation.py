"""A simulated Argo Rollouts controller on a `FakeCluster`, with the parts of Kubernetes that it lives on.

It follows the source of argo-rollouts (about v1.9, and v1.10 where noted); every module and, where it is not evident,
every function names the upstream file whose rule it stands for. Experiments, step plugins, ping-pong services and
routers other than the Gateway API plugin and Istio are not simulated: a Rollout with such a step raises
NotImplementedError. Pods have no grace period.

There are two ways to run it.

In simulated time, for tests of hours in milliseconds: make it on the cluster, and it reacts by itself to whatever is
written, `reaction_seconds` later, while somebody waits in the cluster's time::

    cluster = FakeCluster()                      # has a SimulatedTime
    simulation = Simulation(cluster)
    ...                                          # apply a Rollout through any client
    cluster.time.advance(3600)                   # in plain code; in asynchronous code: await cluster.time.sleep(3600)

`settle()` does everything that can be done now, without letting time pass, so that plain code need not wait at all.

In real time, beside a served cluster (command line and end-to-end tests): make it where the cluster lives, and touch it
there alone::

    with serving({"eu-west-1": Api(FakeCluster(time=RealTime()))}, folder) as servers:
        simulation = servers.do(lambda: Simulation(servers.api("eu-west-1").cluster, start_seconds=0.2))

A cluster that plain code writes to beside its event loop has nobody who could call back; there say `reacts=False`, and
let a task look every 50 ms::

    simulation = Simulation(cluster, start_seconds=0.2, reacts=False)
    task = asyncio.create_task(simulation.run())

What goes wrong is switched on and off at any time: `plugin_broken`, `controller_down`, `unschedulable(...)`,
`crash(...)`, `image_pull_fails(...)`, `slow(...)`, `analysis(phase)`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import ClassVar

from fakes.argo.controller import reconcile
from fakes.argo.deployments import reconcile_deployment
from fakes.argo.measuring import reconcile_run
from fakes.argo.objects import controller_of, stamp
from fakes.argo.pods import Machines, reconcile_replica_set, run_pod
from fakes.argo.reconciliation import ReconcileError
from fakes.argo.world import World
from fakes.kube.cluster import FakeCluster
from fakes.kube.store import Event

from rollouts.kube.model import EVERYWHERE, Json, Resource
from rollouts.kube.resources import ANALYSIS_RUNS, DEPLOYMENTS, PODS, REPLICA_SETS, ROLLOUTS

Key = tuple[str, str, str]
"""Plural, namespace, name."""

_KINDS: dict[str, Resource] = {kind.plural: kind for kind in (ROLLOUTS, REPLICA_SETS, PODS, ANALYSIS_RUNS, DEPLOYMENTS)}
_PLURALS = {kind.kind: kind.plural for kind in _KINDS.values()}
_ROOM = ("nodes", "priorityclasses")
"""Kinds whose change may give a waiting pod its place."""
_MOST_PASSES = 1000
"""Over one object in one `settle`: more is a loop that never ends."""
_LONGEST_BACKOFF = 1000.0
"""Seconds; upstream's rate limiter (`workqueue.DefaultItemBasedRateLimiter`). It starts at 5 ms there, at 1 s here."""


class Simulation:
    """One cluster's controllers, deterministic: they work off a queue in the order in which things changed."""

    def __init__(
        self,
        cluster: FakeCluster,
        *,
        start_seconds: float = 20.0,
        reaction_seconds: float = 0.05,
        reacts: bool = True,
    ) -> None:
        self.cluster = cluster
        self.machines = Machines(start_seconds)
        self.reconcile_errors: Counter[tuple[str, str]] = Counter()
        """By namespace and Rollout, as the controller's metric `rollout_reconcile_error` counts them."""
        self.reconciles: Counter[tuple[str, str]] = Counter()
        """Passes over each, errors among them."""
        self.log: list[str] = []
        """The controller's log, as far as it is of errors."""
        self._world = World(cluster, self._wake)
        self._reaction = reaction_seconds
        self._reacts = reacts
        self._queue: dict[Key, None] = {}
        self._alarms: list[tuple[datetime, Key]] = []
        self._failed: Counter[Key] = Counter()
        self._waiting: dict[Key, None] = {}
        self._working: Key | None = None
        self._called = self._down = self._settling = False
        self._analysis = ("Running", "")
        self._numbers = [0]
        self._know_what_is_there()
        self._forget = cluster.on_change(self._changed)
        self._soon()

    def close(self) -> None:
        """React to nothing any more."""
        self._forget()
        self._queue.clear()
        self._alarms.clear()

    @property
    def plugin_broken(self) -> bool:
        """The traffic plugin does not start: every pass over a Rollout with one ends where traffic is set.

        A new template or new steps are observed even so, since `rolloutCanary` writes the status before it comes to
        traffic: the new replica set stays without pods, and no deadline is ever exceeded. Any other change leaves
        `observedGeneration` behind. `reconcile_errors` and the log tell both (argo-rollouts#3918).
        """
        return self._world.plugin_broken

    @plugin_broken.setter
    def plugin_broken(self, broken: bool) -> None:
        self._world.plugin_broken = broken
        self._again(ROLLOUTS)

    @property
    def controller_down(self) -> bool:
        """No controller reconciles Rollouts, as when it cannot load a plugin at its start; pods live on.

        Nothing is missed: it comes back to what is then there.
        """
        return self._down

    @controller_down.setter
    def controller_down(self, down: bool) -> None:
        self._down = down
        self._again(ROLLOUTS)

    @property
    def mirrors(self) -> bool:
        """Argo Rollouts 1.10: a plugin may be asked for `setMirrorRoute`. Before, such a Rollout is invalid."""
        return self._world.mirrors

    @mirrors.setter
    def mirrors(self, mirrors: bool) -> None:
        self._world.mirrors = mirrors
        self._again(ROLLOUTS)

    def unschedulable(self, what: str, on: bool = True) -> None:
        """New pods of this version or image find no node."""
        self._switch(self.machines.unschedulable, what, on)

    def crash(self, what: str, on: bool = True, *, last_words: str = "") -> None:
        """Containers of this image, or of pods of this version, end with an error again and again."""
        self.machines.last_words[what] = last_words
        self._switch(self.machines.crashes, what, on)

    def image_pull_fails(self, what: str, on: bool = True) -> None:
        """This image, or that of this version, cannot be pulled."""
        self._switch(self.machines.image_pull_fails, what, on)

    def slow(self, what: str, seconds: float) -> None:
        """Pods of this version or image take so long to be ready."""
        self.machines.slow[what] = seconds
        self._again(PODS)

    def analysis(self, phase: str, message: str = "") -> None:
        """All analysis runs that have not ended, and all that come, get this phase.

        `Running` (as at first), `Successful`, `Failed`, `Error` or `Inconclusive`.
        """
        self._analysis = (phase, message)
        self._again(ANALYSIS_RUNS)

    def settle(self) -> None:
        """Do all that can be done now. No time passes.

        Raises:
            RuntimeError: an object was worked on without end.
        """
        if self._settling:
            return
        self._settling, passes = True, Counter[Key]()
        try:
            while self._has_work():
                key = next(iter(self._queue))
                del self._queue[key]
                passes[key] += 1
                if passes[key] > _MOST_PASSES:
                    raise RuntimeError(f"the simulated controllers do not come to rest over {'/'.join(key)}")
                self._work(key)
        finally:
            self._settling = False

    async def run(self, every_seconds: float = 0.05) -> None:
        """Settle again and again, until the task is cancelled."""
        while True:
            self.settle()
            await self.cluster.time.sleep(every_seconds)

    def metrics(self) -> str:
        """What the controller's `/metrics` says, as far as it is needed (`controller/metrics/prommetrics.go`)."""
        lines = ["# TYPE rollout_info gauge"]
        for body in self.cluster.list(ROLLOUTS, namespace=EVERYWHERE):
            metadata, phase = body["metadata"], body.get("status", {}).get("phase", "")
            labels = f'name="{metadata["name"]}",namespace="{metadata["namespace"]}",phase="{phase}"'
            lines.append(f"rollout_info{{{labels}}} 1")
        counters = {"rollout_reconcile_count": self.reconciles, "rollout_reconcile_error": self.reconcile_errors}
        for metric, counts in counters.items():
            for (namespace, name), count in sorted(counts.items()):
                lines.append(f'{metric}{{name="{name}",namespace="{namespace}"}} {count}')
        return "\n".join(lines) + "\n"

    def _know_what_is_there(self) -> None:
        kinds = {kind.key: kind for kind in self.cluster.kinds}
        for key, body in self.cluster.store.everything():
            if key in kinds:
                self._note(Event(kinds[key], "ADDED", None, body, self.cluster.store.version))

    def _changed(self, event: Event) -> None:
        self._note(event)
        self._soon()

    def _note(self, event: Event) -> None:
        """Queue what a change concerns: the object, its owner, Rollouts that name it, pods that wait for room."""
        self._world.index.follow(event)
        plural, gone = event.kind.plural, event.change == "DELETED"
        key = (plural, event.namespace, event.name)
        if plural in _KINDS and not gone:
            self._queue[key] = None
        if gone:
            self._waiting.pop(key, None)
        owner = controller_of(event.after)
        if owner is not None and owner["kind"] in _PLURALS:
            self._queue[_PLURALS[owner["kind"]], event.namespace, owner["name"]] = None
        for namespace, name in self._world.index.naming(event.namespace, event.name):
            self._queue[ROLLOUTS.plural, namespace, name] = None
        if plural in _ROOM or (plural == PODS.plural and gone):
            self._queue |= self._waiting

    def _again(self, resource: Resource) -> None:
        """Look at all of a kind once more: something around them changed."""
        for body in self.cluster.list(resource, namespace=EVERYWHERE):
            self._queue[resource.plural, body["metadata"]["namespace"], body["metadata"]["name"]] = None
        self._soon()

    def _switch(self, names: set[str], what: str, on: bool) -> None:
        names.add(what) if on else names.discard(what)
        self._again(PODS)

    def _soon(self) -> None:
        if self._reacts and self._queue and not self._settling and not self._called:
            self._called = True
            self.cluster.time.call_later(self._reaction, self._react)

    def _react(self) -> None:
        self._called = False
        self.settle()

    def _wake(self, moment: datetime) -> None:
        """Work on what is being worked on again at that time."""
        if self._working is None or (moment, self._working) in self._alarms:
            return
        heapq.heappush(self._alarms, (moment, self._working))
        if self._reacts:
            self.cluster.time.call_later((moment - self._world.now()).total_seconds(), self.settle)

    def _has_work(self) -> bool:
        """Whether anything is queued, with what is due by now."""
        now = self._world.now()
        while self._alarms and self._alarms[0][0] <= now:
            self._queue[heapq.heappop(self._alarms)[1]] = None
        return bool(self._queue)

    def _work(self, key: Key) -> None:
        plural, namespace, name = key
        body = self.cluster.find(_KINDS[plural], name, namespace=namespace)
        if body is None or (plural == ROLLOUTS.plural and self._down):
            return
        self._working = key
        try:
            self._workers[plural](self, key, body)
        finally:
            self._working = None

    def _work_on_rollout(self, key: Key, body: Json) -> None:
        self.reconciles[key[1:]] += 1
        try:
            reconcile(self._world, body)
        except ReconcileError as error:
            self._failed[key] += 1
            self.reconcile_errors[key[1:]] += 1
            what = f'msg="roCtx.reconcile err {error}" namespace={key[1]} rollout={key[2]}'
            self.log.append(f'time="{stamp(self._world.now())}" level=error {what}')
            self._wake(
                self._world.now() + timedelta(seconds=min(2.0 ** min(self._failed[key] - 1, 10), _LONGEST_BACKOFF))
            )
        else:
            del self._failed[key]

    def _work_on_pod(self, key: Key, body: Json) -> None:
        run_pod(self._world, body, self.machines)
        now = self.cluster.find(PODS, key[2], namespace=key[1])
        if now is not None and not now["spec"].get("nodeName"):
            self._waiting[key] = None
        else:
            self._waiting.pop(key, None)

    def _work_on_replica_set(self, key: Key, body: Json) -> None:
        reconcile_replica_set(self._world, body, self._numbers)

    def _work_on_run(self, key: Key, body: Json) -> None:
        reconcile_run(self._world, body, *self._analysis)

    def _work_on_deployment(self, key: Key, body: Json) -> None:
        reconcile_deployment(self._world, body)

    _workers: ClassVar[Mapping[str, Callable[[Simulation, Key, Json], None]]] = {
        ROLLOUTS.plural: _work_on_rollout,
        PODS.plural: _work_on_pod,
        REPLICA_SETS.plural: _work_on_replica_set,
        ANALYSIS_RUNS.plural: _work_on_run,
        DEPLOYMENTS.plural: _work_on_deployment,
    }
