"""The simulated Argo Rollouts controller as a process next to a real API server.

    PYTHONPATH=tests python -m fakes.argo.process --kubeconfig FILE --namespace serving --control serving/switches

ReplicaSets, pods, Services, endpoints and gateways are the cluster's own; only Rollouts and AnalysisRuns are worked on
here, by the code of `fakes.argo.controller`, in one thread that knows and acts: changes come in between two
reconciliations. Once it knows what is there it prints one line that begins with `ready`. Everything it must remember is
in the API server, so that it may be killed and started again at any time. SIGTERM ends it.

What goes wrong is switched by a ConfigMap, `--control NAMESPACE/NAME`, at any time:

| key | values | as |
|---|---|---|
| `plugin_broken` | `true`, `false` | `Simulation.plugin_broken` |
| `analysis` | `Running`, `Successful`, `Failed`, `Error` | `Simulation.analysis` |

A key that is not there, and a ConfigMap that is not there, is as at first. A controller that is down is a process that
was stopped or killed.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

from fakes.argo.mirror import Mirror
from fakes.argo.objects import HASH_LABEL
from fakes.argo.simulation import Simulation

from rollouts.adapters.kube.client import KubeClient, connect
from rollouts.errors import FleetError, NotFound
from rollouts.kube.model import EVERYWHERE, Request, Resource, WatchEvent, WatchEventType
from rollouts.kube.resources import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    SERVICES,
)
from tidegate.core.clock import SystemClock
from tidegate.core.model import Json

SWITCHES = {"plugin_broken": ("false", "true"), "analysis": ("Running", "Successful", "Failed", "Error")}
"""What each can be; as at first comes first."""
AT_FIRST = {key: values[0] for key, values in SWITCHES.items()}


class Switches:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._now = dict(AT_FIRST)

    def follow(self, change: WatchEvent) -> None:
        """Set what changed; what cannot be read is told and stays as it was."""
        if change.kind in (WatchEventType.SYNCED, WatchEventType.BOOKMARK):
            return
        said = {} if change.kind is WatchEventType.DELETED else change.object.get("data") or {}
        desired = AT_FIRST | {key: text for key, text in said.items() if self._understood(key, text)}
        before, self._now = self._now, desired
        changed = {key for key in AT_FIRST if before[key] != desired[key]}
        if "plugin_broken" in changed:
            self._simulation.plugin_broken = desired["plugin_broken"] == "true"
        if "analysis" in changed:
            self._simulation.analysis(desired["analysis"])

    def _understood(self, key: str, text: str) -> bool:
        if key not in SWITCHES:
            wrong = f"no switch {key}; there are {', '.join(SWITCHES)}"
        elif text not in SWITCHES[key]:
            wrong = f"{key} is {text}; it can be {', '.join(SWITCHES[key])}"
        else:
            return True
        print(f"switches: {wrong}", file=sys.stderr, flush=True)
        return False


FOLLOWED = (ROLLOUTS, REPLICA_SETS, PODS, SERVICES, DEPLOYMENTS, ANALYSIS_RUNS, ANALYSIS_TEMPLATES)
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

    def tell(self, watch: Watch, change: WatchEvent) -> None:
        self._jobs.put(partial(self._take, watch, change))

    def nothing(self, watch: Watch) -> None:
        """The cluster does not serve that kind."""
        self._jobs.put(partial(self._heard, watch))

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

    def _take(self, watch: Watch, change: WatchEvent) -> None:
        if watch[0] == CONFIG_MAPS:
            self._switches.follow(change)
        else:
            self._mirror.follow(watch[0], change)
        if change.kind is WatchEventType.SYNCED:
            self._heard(watch)

    def _heard(self, watch: Watch) -> None:
        self._untold.discard(watch)
        if not self._untold:
            self._ready(len(self._mirror.list(ROLLOUTS)))


RETRY_SECONDS = 2.0
"""How long a request is repeated; the queue tries a whole pass again after that."""
_OURS = {REPLICA_SETS: HASH_LABEL, PODS: HASH_LABEL}
"""Only what some Rollout made: a cluster has many more."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        return asyncio.run(_Process(options).run())
    except FleetError as error:
        print(f"rollouts controller: {error.message}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m fakes.argo.process", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kubeconfig", help="a file; KUBECONFIG otherwise")
    parser.add_argument("--context", help="the file's current one otherwise")
    parser.add_argument("--namespace", default=EVERYWHERE, help="all of them otherwise")
    parser.add_argument("--control", metavar="NAMESPACE/NAME", help="a ConfigMap that says what goes wrong")
    return parser


class _Process:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._client: KubeClient = connect(
            options.context,
            clock=SystemClock(),
            namespace="default",
            kubeconfig=options.kubeconfig,
            retry_seconds=RETRY_SECONDS,
        )

    async def run(self) -> int:
        """Until somebody ends it."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        try:
            return await self._work(loop, ended)
        finally:
            await self._client.close()

    async def _work(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> int:
        failed: asyncio.Future[None] = loop.create_future()
        worker = Worker(
            Mirror(FOLLOWED, ask=partial(self._ask, loop)),
            self._watches,
            ready=self._say_ready,
            failed=lambda error: void(loop.call_soon_threadsafe(failed.set_exception, error)),
        )
        worker.start()
        tasks: list[asyncio.Future[Any]] = [failed]
        tasks += [asyncio.ensure_future(self._watch(worker, watch)) for watch in self._watches]
        stop = asyncio.ensure_future(ended.wait())
        done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(worker.end)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done - {stop}:
            task.result()
        return 0

    def _ask(self, loop: asyncio.AbstractEventLoop, request: Request) -> Json:
        return asyncio.run_coroutine_threadsafe(self._client.send(request), loop).result()

    def _say_ready(self, count: int) -> None:
        print(f"ready: {count} Rollouts", flush=True)

    @property
    def _watches(self) -> list[Watch]:
        return [(resource, self._options.namespace) for resource in FOLLOWED] + (
            [(CONFIG_MAPS, self._options.control)] if self._options.control else []
        )

    async def _watch(self, worker: Worker, watch: Watch) -> None:
        """Tell the worker what happens to a kind; one that is not served has nothing to tell."""
        resource, where = watch
        if resource == CONFIG_MAPS:
            namespace, _, name = where.rpartition("/")
            chosen = self._client.watch(resource, fields=f"metadata.name={name}", namespace=namespace or "default")
        else:
            chosen = self._client.watch(resource, labels=_OURS.get(resource, ""), namespace=where)
        try:
            async with aclosing(chosen) as changes:
                async for change in changes:
                    worker.tell(watch, change)
        except NotFound:
            if resource == ROLLOUTS:
                raise
            worker.nothing(watch)
            await asyncio.Event().wait()


def void(_: object) -> None:
    """For callers that want no answer."""


if __name__ == "__main__":
    sys.exit(main())
