"""What it costs one process to watch many regions, as JSON.

    nice -n 10 .venv/bin/python benchmarks/watch_scale.py --regions 200 --rollouts 50

Another process serves one Kubernetes API for each region (`tests/fakes/kube`), all on one port of the loopback, over
plain HTTP; each has its Rollouts, as large as real ones. Here one `KubeClient` a region watches them, and reacts to
each change by judging the Rollout's health. The server writes the time into each change before it is stored, on the
clock that both processes share: the latency is from there to the end of the reaction, the server's own part included.

Told are: the start until everything is known; rest; steady changes; all Rollouts changing at once; every stream cut
while something changes in each region; every version expired, so that each region is listed again. At the end both
sides must know the same versions, and no change may have been told twice.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import uvicorn
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.clock import RealTime  # noqa: E402
from fakes.kube.api import Api  # noqa: E402
from fakes.kube.cluster import FakeCluster  # noqa: E402
from fakes.kube.server import app_of  # noqa: E402

from rollouts.adapters.kube.client import KubeClient  # noqa: E402
from rollouts.adapters.kube.credentials import CredentialProvider  # noqa: E402
from rollouts.argo.state import RolloutHealth, health_of  # noqa: E402
from rollouts.kube.model import PatchKind, WatchEventType  # noqa: E402
from rollouts.kube.resources import ROLLOUTS  # noqa: E402
from tidegate.core.clock import SystemClock  # noqa: E402
from tidegate.core.model import Json  # noqa: E402

NAMESPACE = "llm"
WRITTEN = "written at "
"""Begins the message in a status; the rest is the time of the change, in nanoseconds of the monotonic clock."""

Write = Callable[[int], Awaitable[None]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure watching many regions.")
    parser.add_argument("--regions", type=int, default=200)
    parser.add_argument("--rollouts", type=int, default=50, help="in each region")
    parser.add_argument("--rates", type=int, nargs="+", default=[20, 100, 300], help="changes in a second, of all")
    parser.add_argument("--seconds", type=float, default=20, help="of rest, and of each rate")
    parser.add_argument("--serve", action="store_true", help="be the server; for this program's own use")
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.regions, arguments.rollouts))
    else:
        print(json.dumps(asyncio.run(measure(arguments)), indent=2))


# The watching process.


@dataclass
class Watcher:
    """What one process knows of all regions."""

    versions: dict[tuple[str, str], str] = field(default_factory=dict)
    health: dict[tuple[str, str], RolloutHealth] = field(default_factory=dict)
    synced: set[str] = field(default_factory=set)
    latencies: list[float] = field(default_factory=list)
    """Milliseconds of each change since the last look."""
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WatchEventType, 0))
    repeated: int = 0

    async def watch(self, region: str, client: KubeClient) -> None:
        """Follow one region until cancelled."""
        async with aclosing(client.watch(ROLLOUTS)) as changes:
            async for change in changes:
                self.told[change.kind] += 1
                if change.kind is WatchEventType.SYNCED:
                    self.synced.add(region)
                elif change.kind is not WatchEventType.BOOKMARK:
                    self.react(region, change.kind, change.object)

    def react(self, region: str, kind: WatchEventType, rollout: Json) -> None:
        """Judge it, and note how late that was."""
        meta = rollout["metadata"]
        key = region, meta["name"]
        self.repeated += self.versions.get(key) == meta["resourceVersion"]
        self.versions[key] = meta["resourceVersion"]
        self.health[key] = health_of(rollout, now=SystemClock().now())
        if kind is WatchEventType.MODIFIED:
            written = int(rollout["status"]["message"].removeprefix(WRITTEN))
            self.latencies.append((time.monotonic_ns() - written) / 1e6)


class Server:
    """The other process, which does what it is told in one line and answers in one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.usage = psutil.Process(process.pid)

    async def ask(self, what: str, **more: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
        await self._process.stdin.drain()
        return await self.answer()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the server ended"
        return json.loads(line)


@asynccontextmanager
async def serving(regions: int, rollouts: int) -> AsyncIterator[tuple[Server, str]]:
    command = (sys.executable, __file__, "--serve", "--regions", str(regions), "--rollouts", str(rollouts))
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**26)
    server = Server(process)
    try:
        yield server, await server.answer()
    finally:
        process.terminate()
        await process.wait()


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    machine: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "tls": False,
    }
    async with serving(arguments.regions, arguments.rollouts) as (server, url):
        names = [f"region-{number}" for number in range(arguments.regions)]
        clock = SystemClock()
        clients = {
            name: KubeClient(CredentialProvider.fixed(f"{url}/{name}", clock=clock), namespace=NAMESPACE, clock=clock)
            for name in names
        }
        watcher = Watcher()
        before = memory_mib()
        parts: dict[str, Any] = {}
        begun = Meter(watcher, server)
        tasks = [asyncio.create_task(watcher.watch(name, client)) for name, client in clients.items()]
        await until(lambda: len(watcher.synced) == len(names))
        parts["start"] = begun.read() | {"memory_before_mib": before, "rollouts": len(watcher.versions)}
        parts |= await changes(watcher, server, arguments)
        parts["memory_at_the_end_mib"] = memory_mib()
        right = await server.ask("versions")
        mine: dict[str, dict[str, str]] = {name: {} for name in names}
        for (region, name), version in watcher.versions.items():
            mine[region][name] = version
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients.values():
            await client.close()
    size = {"regions": len(names), "rollouts": len(watcher.versions), "bytes_of_a_rollout": right["bytes"]}
    end = {
        "same_as_the_servers": mine == right["versions"],
        "told_twice": watcher.repeated,
        "told": watcher.told,
        "lists": right["lists"],
    }
    machine["load_after"] = round(os.getloadavg()[0], 1)
    return {"machine": machine, "size": size, **parts, "end": end}


async def changes(watcher: Watcher, server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything after the start."""
    parts: dict[str, Any] = {}
    meter = Meter(watcher, server)
    await asyncio.sleep(arguments.seconds)
    parts["rest"] = meter.read()
    for rate in arguments.rates:
        parts[f"{rate}_changes_a_second"] = await one(
            watcher, server, "write", count=round(rate * arguments.seconds), rate=rate
        )
    everything = arguments.regions * arguments.rollouts
    parts["all_at_once"] = await one(watcher, server, "write", count=everything, rate=0)
    parts["every_stream_cut"] = await one(watcher, server, "cut", count=arguments.regions)
    parts["every_version_expired"] = await one(watcher, server, "expire", count=arguments.regions)
    return parts


async def one(watcher: Watcher, server: Server, what: str, *, count: int, **more: Any) -> dict[str, Any]:
    """Let the server do it, until the watcher has reacted to `count` changes."""
    watcher.latencies.clear()
    meter = Meter(watcher, server)
    written = await server.ask(what, count=count, **more)
    await until(lambda: len(watcher.latencies) >= count)
    read = meter.read()
    each = {"processor_ms_a_change": round(1000 * read["processor_seconds"] / count, 2)}
    return read | each | {"server_wrote_for_s": round(written, 2)} | latency_ms(watcher.latencies)


class Meter:
    """Time and processor time of both processes from here on."""

    def __init__(self, watcher: Watcher, server: Server) -> None:
        self._watcher, self._server = watcher, server
        self._wall, self._mine, self._theirs = time.monotonic(), time.process_time(), self._server_seconds()

    def _server_seconds(self) -> float:
        used = self._server.usage.cpu_times()
        return used.user + used.system

    def read(self) -> dict[str, Any]:
        wall = time.monotonic() - self._wall
        mine, theirs = time.process_time() - self._mine, self._server_seconds() - self._theirs
        return {
            "seconds": round(wall, 2),
            "processor_seconds": round(mine, 2),
            "processor_percent_of_a_core": round(100 * mine / wall, 1),
            "server_percent_of_a_core": round(100 * theirs / wall, 1),
            "memory_mib": memory_mib(),
        }


def memory_mib() -> float:
    return round(psutil.Process().memory_info().rss / 2**20, 1)


def latency_ms(latencies: list[float]) -> dict[str, Any]:
    ordered = sorted(latencies)
    at = {f"p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 95, 99)}
    return {
        "changes": len(ordered),
        "latency_ms": {name: round(value, 1) for name, value in {**at, "max": ordered[-1]}.items()},
    }


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(600):
        while not done():
            await asyncio.sleep(0.01)


# The serving process.


async def serve(regions: int, rollouts: int) -> None:
    """Serve until stdin ends; the first line on stdout is the address."""
    rollout, clock = a_rollout(), RealTime()
    names = [f"region-{number}" for number in range(regions)]
    apis = {name: Api(FakeCluster(name, namespace=NAMESPACE, time=clock)) for name in names}
    for api, number in itertools.product(apis.values(), range(rollouts)):
        meta = {**rollout["metadata"], "name": f"delivery-{number}", "uid": str(uuid4())}
        put(api, {**rollout, "metadata": meta})
    config = uvicorn.Config(application(apis), port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    say(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    while line := await asyncio.to_thread(sys.stdin.readline):
        say(await obey(json.loads(line), apis))
    server.should_exit = True
    await running


def say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


async def obey(order: dict[str, Any], apis: dict[str, Api]) -> Any:
    begun = time.monotonic()
    match order["do"]:
        case "write":
            await write(apis, order["count"], order["rate"])
        case "cut":
            for api in apis.values():
                api.cut_watches()
                touch(api, "delivery-0")
        case "expire":
            for api in apis.values():
                api.cut_watches()
                touch(api, "delivery-0")
                api.cluster.store.compact()
        case "versions":
            return {
                "bytes": len(json.dumps(next(iter(apis.values())).cluster.get(ROLLOUTS, "delivery-0"))),
                "lists": sum(call.verb == "list" for api in apis.values() for call in api.calls),
                "versions": {name: versions(api) for name, api in apis.items()},
            }
    return time.monotonic() - begun


async def write(apis: dict[str, Api], count: int, rate: float) -> None:
    """Change one Rollout after the other, in another region each time; a `rate` of 0 is as fast as it goes."""
    begun = time.monotonic()
    names = sorted(each["metadata"]["name"] for each in next(iter(apis.values())).cluster.list(ROLLOUTS))
    turns = itertools.cycle((api, name) for name in names for api in apis.values())
    for number, (api, name) in zip(range(count), turns, strict=False):
        late = begun + number / rate - time.monotonic() if rate else 0.0
        await asyncio.sleep(max(0.0, late))
        touch(api, name)


def touch(api: Api, name: str) -> None:
    """What a controller does at each step: another status."""
    now = api.cluster.get(ROLLOUTS, name)
    message = f"{WRITTEN}{time.monotonic_ns()}"
    put(api, {**now, "status": {**now["status"], "phase": "Progressing", "message": message}})


def put(api: Api, rollout: Json) -> None:
    """Into the store at once: the fake's own work on each write, 3 ms, is not what is measured."""
    api.cluster.store.put(api.cluster.served(ROLLOUTS.group, ROLLOUTS.plural), rollout)


def versions(api: Api) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in api.cluster.list(ROLLOUTS)}


def a_rollout() -> Json:
    """As tidegate renders it and the API server keeps it, with the status of one whose analysis runs."""
    documents = yaml.safe_load_all((ROOT / "tests/golden/manifests/canary/expected.yaml").read_text())
    rendered: Json = next(each for each in documents if each["kind"] == "Rollout")
    recorded = json.loads((ROOT / "tests/golden/rollouts/states/analysing/rollout.json").read_text())
    name = rendered["metadata"]["name"]
    manifest = {**rendered, "metadata": {**rendered["metadata"], "namespace": NAMESPACE}}
    cluster = FakeCluster(namespace=NAMESPACE)
    cluster.patch(ROLLOUTS, name, manifest, kind=PatchKind.APPLY, manager="tidegate")
    return cluster.patch(ROLLOUTS, name, {"status": recorded["status"]}, subresource="status")


def application(apis: dict[str, Api]) -> Callable[..., Awaitable[None]]:
    """All regions behind one address, each below its own name."""
    apps = {name: app_of(api) for name, api in apis.items()}

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        region = scope["path"].split("/", 2)[1]
        await apps[region]({**scope, "raw_path": scope["raw_path"].removeprefix(f"/{region}".encode())}, receive, send)

    return app


if __name__ == "__main__":
    main()
