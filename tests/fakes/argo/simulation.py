"""A simulated Argo Rollouts controller on a `FakeCluster`, with the parts of Kubernetes that it lives on.

It follows the source of argo-rollouts (about v1.9, and v1.10 where noted); every module and, where it is not evident,
every function names the upstream file whose rule it stands for, and `test_as_seen.py` what the real one was seen to do.
Anything but a canary with the steps of a delivery raises NotImplementedError; an analysis is passed over. Pods have no
grace period.

There are two ways to run it.

In simulated time, for tests of hours in milliseconds: make it on the cluster, and it reacts by itself to whatever is
written, `reaction_seconds` later, while somebody waits in the cluster's time::

    cluster = FakeCluster()                      # has a SimulatedTime
    simulation = Simulation(cluster)
    ...                                          # apply a Rollout through any client
    cluster.time.advance(3600)                   # in plain code; in asynchronous code: await cluster.time.sleep(3600)

`settle()` does everything that can be done now, without letting time pass, so that plain code need not wait at all.

In real time, next to a served cluster (command line and end-to-end tests): make it where the cluster lives, and touch
it there alone::

    with serving({"eu-west-1": Api(FakeCluster(time=RealTime()))}, folder) as servers:
        simulation = servers.do(lambda: Simulation(servers.api("eu-west-1").cluster, start_seconds=0.2))

A cluster that plain code writes to next to its event loop has nobody who could call back; there say `reacts=False`, and
let a task look every 50 ms::

    simulation = Simulation(cluster, start_seconds=0.2, reacts=False)
    task = asyncio.create_task(simulation.run())

What goes wrong is switched on and off at any time: `plugin_broken`, `controller_down`, `crash(...)`,
`image_pull_fails(...)`, `slow(...)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from fakes.argo.controller import reconcile
from fakes.argo.objects import controller_of, stamp
from fakes.argo.reconciliation import ReconcileError
from fakes.argo.workloads import Machines, reconcile_replica_set, run_pod
from fakes.argo.world import MANAGER, Cluster, Key, WorkQueue, World
from fakes.kube.refusal import Refusal
from fakes.kube.store import Event

from rollouts.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, ROLLOUTS, SERVICES, VIRTUAL_SERVICES, Resource
from rollouts.kube.resources import MANAGER as TIDEGATE
from tidegate.core.model import Json

_KINDS: dict[str, Resource] = {kind.plural: kind for kind in (ROLLOUTS, REPLICA_SETS, PODS)}
_NAMED = {kind.plural for kind in (SERVICES, DEPLOYMENTS, VIRTUAL_SERVICES)}
"""What Rollouts name: each change of one wakes them all. No controller watches the routes of a plugin."""
_PLURALS = {kind.kind: kind.plural for kind in _KINDS.values()}
_MOST_PASSES = 1000
"""Over one object in one `settle`: more is a loop that never ends."""
_LONGEST_BACKOFF = 1000
"""Seconds; upstream's rate limiter (`workqueue.DefaultItemBasedRateLimiter`). It starts at 5 ms there, at 1 s here."""


class Simulation:
    """One cluster's controllers, deterministic: they work off a queue in the order in which things changed."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        start_seconds: float = 20.0,
        reaction_seconds: float = 0.05,
        reacts: bool = True,
        works_on: Collection[Resource] = tuple(_KINDS.values()),
        first_retry_seconds: float = 1.0,
        longest_retry_seconds: float = _LONGEST_BACKOFF,
        pods_made: int = 0,
    ) -> None:
        """`works_on`: the kinds that are simulated; others are somebody else's, such as a real cluster's own.

        `pods_made` is how many were made before in this cluster, whose names are taken.
        """
        self.cluster = cluster
        self.machines = Machines(start_seconds)
        self.log: list[str] = []
        """The controller's log, as far as it is of errors."""
        self._world = World(cluster, self._wake)
        self._reaction = reaction_seconds
        self._reacts = reacts
        self._queue = WorkQueue()
        self._failed: Counter[Key] = Counter()
        self._working: Key | None = None
        self._called = self._down = self._settling = False
        self._pods_made = [pods_made]
        self._workers: dict[str, Callable[[Key, Json], None]] = {
            ROLLOUTS.plural: self._work_on_rollout,
            PODS.plural: lambda _, body: run_pod(self._world, body, self.machines),
            REPLICA_SETS.plural: lambda _, body: reconcile_replica_set(self._world, body, self._pods_made),
        }
        self.loses_writes_within = 0.0
        """Seconds after a write of its own in which it loses those of tidegate to the same Rollout, as up to 1.9.1.

        Half of them within 0.05 s there; all of them here. Any other write is heard, and wakes it.
        """
        self.catches_up_after = 0.0
        """Seconds that it sees nothing after its next outage: up to a minute after one of the API server."""
        self._own_writes: dict[Key, float] = {}
        """When the controller wrote the Rollouts that nobody wrote since."""
        self._simulated = frozenset(kind.plural for kind in works_on)
        self._retries = (first_retry_seconds, longest_retry_seconds)
        cluster.on_change(self._changed)
        self.begin(pods_made=pods_made)

    @property
    def pods_made(self) -> int:
        """How many until now."""
        return self._pods_made[0]

    @property
    def plugin_broken(self) -> bool:
        """The traffic plugin does not start: every pass over a Rollout with one ends where traffic is set.

        A new template or new steps are observed even so, since `rolloutCanary` writes the status before it comes to
        traffic: the new replica set stays without pods, and no deadline is ever exceeded. Any other change leaves
        `observedGeneration` behind. The log tells both (argo-rollouts#3918).
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
        if self._down and not down and self.catches_up_after:
            seconds, self.catches_up_after = self.catches_up_after, 0.0
            self.cluster.time.call_later(seconds, lambda: setattr(self, "controller_down", False))
            return
        self._down = down
        self._again(ROLLOUTS)

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

    @property
    def due(self) -> datetime | None:
        """When there will be something to do without any change."""
        return self._queue.due

    def settle(self) -> None:
        """Do all that can be done now. No time passes.

        Raises:
            RuntimeError: an object was worked on without end.
        """
        if self._settling:
            return
        self._settling, passes = True, Counter[Key]()
        try:
            while (key := self.work_once()) is not None:
                passes[key] += 1
                if passes[key] > _MOST_PASSES:
                    raise RuntimeError(f"the simulated controllers do not come to rest over {'/'.join(key)}")
        finally:
            self._settling = False

    def work_once(self) -> Key | None:
        """One pass over one object; which one, or None when there is nothing to do now."""
        key = self._queue.take(self._world.now())
        if key is not None:
            self._work(key)
        return key

    async def run(self, every_seconds: float = 0.05) -> None:
        """Settle again and again, until the task is cancelled."""
        while True:
            self.settle()
            await self.cluster.time.sleep(every_seconds)

    def begin(self, *, pods_made: int) -> None:
        """Know what is in the cluster, of which nobody told."""
        self._pods_made[0] = pods_made
        for event in self.cluster.existing():
            self._note(event)
        self._soon()

    def _changed(self, event: Event) -> None:
        self._note(event)
        self._soon()

    def _note(self, event: Event) -> None:
        """Queue what a change concerns: the object, its owner, Rollouts that may name it."""
        plural, gone = event.kind.plural, event.change == "DELETED"
        key = (plural, event.namespace, event.name)
        if plural == ROLLOUTS.plural and self._loses(key, event.manager):
            return
        if not gone:
            self._look_at(key)
        owner = controller_of(event.after)
        if owner is not None:
            self._look_at((_PLURALS.get(owner["kind"], ""), event.namespace, owner["name"]))
        if plural in _NAMED:
            self._again(ROLLOUTS)

    def _loses(self, key: Key, manager: str) -> bool:
        """Whether this write is put over by an older copy in the controller's cache."""
        now, own = self.cluster.time.monotonic(), self._own_writes.pop(key, None)
        if manager == MANAGER:
            self._own_writes[key] = now
        return manager == TIDEGATE and own is not None and now - own < self.loses_writes_within

    def _again(self, resource: Resource) -> None:
        """Look at all of a kind once more: something around them changed."""
        for body in self._world.everywhere(resource):
            self._look_at((resource.plural, body["metadata"]["namespace"], body["metadata"]["name"]))
        self._soon()

    def _look_at(self, key: Key) -> None:
        """Some time soon, unless it is somebody else's."""
        if key[0] in self._simulated:
            self._queue.add(key)

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
        if self._working is not None and self._queue.add_at(moment, self._working) and self._reacts:
            self.cluster.time.call_later((moment - self._world.now()).total_seconds(), self.settle)

    def _work(self, key: Key) -> None:
        plural, namespace, name = key
        body = self._world.find(_KINDS[plural], name, namespace)
        if body is None or (plural == ROLLOUTS.plural and self._down):
            return
        self._working = key
        try:
            self._workers[plural](key, body)
        finally:
            self._working = None

    def _work_on_rollout(self, key: Key, body: Json) -> None:
        try:
            reconcile(self._world, body)
        except (ReconcileError, Refusal) as error:
            self._fail(key, str(error))
        else:
            del self._failed[key]

    def _fail(self, key: Key, why: str) -> None:
        """Count it, log it, and try again after twice as long as the last time."""
        self._failed[key] += 1
        what = f'msg="roCtx.reconcile err {why}" namespace={key[1]} rollout={key[2]}'
        self.log.append(f'time="{stamp(self._world.now())}" level=error {what}')
        first, longest = self._retries
        seconds = min(first * 2 ** min(self._failed[key] - 1, 60), longest)
        self._wake(self._world.now() + timedelta(seconds=seconds))
