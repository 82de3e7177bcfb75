"""The one thread that knows and acts: changes come in between two reconciliations, and time brings the rest."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

from fakes.argo.mirror import Mirror
from fakes.argo.simulation import Simulation
from fakes.argo.switches import Switches

from rollouts.kube.model import Change, ChangeKind, Resource
from rollouts.kube.resources import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CLUSTER_ANALYSIS_TEMPLATES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    SERVICES,
)

FOLLOWED = (
    *(ROLLOUTS, REPLICA_SETS, PODS, SERVICES, DEPLOYMENTS),
    *(ANALYSIS_RUNS, ANALYSIS_TEMPLATES, CLUSTER_ANALYSIS_TEMPLATES),
)
"""What upstream has informers for (`controller/controller.go`), and pods, which it lists when it needs them."""
SIMULATED = (ROLLOUTS, ANALYSIS_RUNS)
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.001, 10.0
"""`utils/queue/queue.go`, DefaultArgoRolloutsRateLimiter."""

Watch = tuple[Resource, str]
"""A kind in a namespace; with ConfigMaps namespace and name of the one with the switches."""


class Worker:
    """Owns a `Mirror` and the `Simulation` on it; every method may be called from any thread."""

    def __init__(
        self,
        mirror: Mirror,
        watches: Iterable[Watch],
        *,
        ready: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`ready` is told the number of Rollouts once all `watches` have told what is there."""
        self._mirror = mirror
        self._simulation = Simulation(
            mirror,
            reacts=False,
            works_on=SIMULATED,
            first_retry_seconds=FIRST_RETRY_SECONDS,
            longest_retry_seconds=LONGEST_RETRY_SECONDS,
        )
        self._switches = Switches(self._simulation)
        self._ready = ready
        self._failed = failed
        self._untold = set(watches)
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="rollouts controller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, within_seconds: float = 5.0) -> None:
        """After what is being done now; a pass that hangs is left behind."""
        self._jobs.put(partial(setattr, self, "_ended", True))
        self._thread.join(within_seconds)

    def tell(self, watch: Watch, change: Change) -> None:
        self._jobs.put(partial(self._take, watch, change))

    def nothing(self, watch: Watch) -> None:
        """The cluster does not serve that kind."""
        self._jobs.put(partial(self._heard, watch))

    def metrics(self) -> Future[str]:
        answer: Future[str] = Future()
        self._jobs.put(lambda: answer.set_result(self._simulation.metrics()))
        return answer

    def _run(self) -> None:
        """What is heard comes before each pass: nobody tries again with what was refused as outdated."""
        try:
            idle = True
            while not self._ended:
                self._do_jobs(wait=idle)
                idle = bool(self._untold) or self._ended or not self._work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the process must end with it
            self._failed(error)

    def _do_jobs(self, *, wait: bool) -> None:
        """All there are; with `wait` after waiting for one until something is due."""
        try:
            self._jobs.get(block=wait, timeout=self._seconds_to_wait() if wait else None)()
            while True:
                self._jobs.get_nowait()()
        except queue.Empty:
            return

    def _seconds_to_wait(self) -> float | None:
        due = self._simulation.due
        if due is None or self._untold:
            return None
        return max((due - self._mirror.time.now()) / timedelta(seconds=1), 0.0)

    def _work(self) -> bool:
        """Whether there was something to do."""
        try:
            return self._simulation.work_once() is not None
        except NotImplementedError as error:
            print(f"not simulated: {error}", file=sys.stderr, flush=True)
            return True
        finally:
            for line in self._simulation.log:
                print(line, file=sys.stderr, flush=True)
            self._simulation.log.clear()

    def _take(self, watch: Watch, change: Change) -> None:
        if watch[0] == CONFIG_MAPS:
            self._switches.follow(change)
        else:
            self._mirror.follow(watch[0], change)
        if change.kind is ChangeKind.SYNCED:
            self._heard(watch)

    def _heard(self, watch: Watch) -> None:
        self._untold.discard(watch)
        if not self._untold:
            self._ready(len(self._mirror.list(ROLLOUTS)))
