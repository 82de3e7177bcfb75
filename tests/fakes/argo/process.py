"""The simulated Argo Rollouts controller as a process beside a real API server.

    PYTHONPATH=tests python -m fakes.argo.process --kubeconfig FILE --namespace serving --metrics-port 8090

ReplicaSets, pods, Services, endpoints and gateways are the cluster's own; only Rollouts and AnalysisRuns are worked on
here, by the code of `fakes.argo.controller`. Once it knows what is there it prints one line that begins with `ready`.
Everything it must remember is in the API server, so that it may be killed and started again at any time. SIGTERM ends
it. `--install` brings the kinds of Argo Rollouts into a cluster that has none.

What goes wrong is switched by a ConfigMap, `--control NAMESPACE/NAME`, at any time (`fakes.argo.switches`).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from fakes.argo import definitions
from fakes.argo.mirror import Mirror
from fakes.argo.objects import HASH_LABEL
from fakes.argo.serving_metrics import serve_metrics
from fakes.argo.worker import FOLLOWED, Watch, Worker

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.connect import connect
from rollouts.errors import FleetError, NotFound
from rollouts.kube import requests
from rollouts.kube.model import EVERYWHERE, Json, Request
from rollouts.kube.resources import CONFIG_MAPS, EVENTS, PODS, REPLICA_SETS, ROLLOUTS
from tidegate.core.clock import SystemClock

PATIENCE_SECONDS = 2.0
"""How long a request is said again; the queue tries a whole pass again after that."""
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
    parser.add_argument("--namespace", action="append", default=[], help="may be said again; all of them otherwise")
    parser.add_argument("--metrics-port", type=int, help="serve /metrics there; 0 takes a free port")
    parser.add_argument("--metrics-host", default="127.0.0.1")
    parser.add_argument("--control", metavar="NAMESPACE/NAME", help="a ConfigMap that says what goes wrong")
    parser.add_argument(
        "--install", action="store_true", help="bring the kinds of Argo Rollouts where they are missing"
    )
    return parser


class _Process:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._namespaces: list[str] = options.namespace or [EVERYWHERE]
        self._client: KubeClient = connect(
            options.context,
            clock=SystemClock(),
            namespace="default",
            kubeconfig=options.kubeconfig,
            patience_seconds=PATIENCE_SECONDS,
        )
        self._events: asyncio.Queue[Json] = asyncio.Queue()
        self._where = ""

    async def run(self) -> int:
        """Until somebody ends it."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        try:
            if self._options.install:
                await definitions.install(self._client)
            return await self._work(loop, ended)
        finally:
            await self._client.close()

    async def _work(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> int:
        failed: asyncio.Future[None] = loop.create_future()
        worker = Worker(
            Mirror(FOLLOWED, ask=partial(self._ask, loop), tell=partial(self._tell, loop)),
            self._watches,
            ready=self._say_ready,
            failed=lambda error: void(loop.call_soon_threadsafe(failed.set_exception, error)),
        )
        if self._options.metrics_port is not None:
            host = self._options.metrics_host
            _, port = await serve_metrics(
                lambda: asyncio.wrap_future(worker.metrics()), host, self._options.metrics_port
            )
            self._where = f", metrics at http://{host}:{port}/metrics"
        worker.start()
        tasks: list[asyncio.Future[Any]] = [failed, asyncio.ensure_future(self._record_events())]
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

    def _tell(self, loop: asyncio.AbstractEventLoop, event: Json) -> None:
        loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _say_ready(self, count: int) -> None:
        print(f"ready: {count} Rollouts{self._where}", flush=True)

    @property
    def _watches(self) -> list[Watch]:
        return [
            (resource, namespace)
            for resource in FOLLOWED
            for namespace in (self._namespaces if resource.namespaced else [EVERYWHERE])
        ] + ([(CONFIG_MAPS, self._options.control)] if self._options.control else [])

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

    async def _record_events(self) -> None:
        """One after another, beside the work; an event that cannot be told is lost, as upstream's are."""
        while True:
            body = await self._events.get()
            with suppress(FleetError):
                await self._client.send(requests.replace(EVENTS, body))


def void(_: object) -> None:
    """For callers that want no answer."""


if __name__ == "__main__":
    sys.exit(main())
