"""Our load, vLLM's benchmark client and GuideLLM on the same server, in turn: cost of a stream, and error of its times.

    .venv/bin/python -m benchmarks.load_clients.run > result.json
    .venv/bin/python -m benchmarks.load_clients.run --repeats 1 --engine > result.json

The server emits each token at a moment that it knows, and keeps when each left. It has a core of its own (the first),
the client with all its processes another (the second). Core seconds are of the client's processes between the first
request that the server saw and the last token that it sent, so that imports are not counted. A client that carried
less than 90 % of a rate is not asked for higher ones. With `--engine`, the same on a real vLLM of a tiny model, where
the engine's own mean is the only truth there is. The first run installs GuideLLM below `--state` (minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.figures import Quantiles, machine
from benchmarks.load_clients.clients import (
    Client,
    GuideLlm,
    Measured,
    Ours,
    Place,
    Task,
    VllmBench,
    environment_of,
    installed,
    pinned,
)
from benchmarks.load_clients.core_time import CoreTime
from benchmarks.load_clients.engine import engine, told_by_engine
from engine_images.adapters.environment import find_engine_environment
from rollouts.adapters.sockets import free_port
from tidegate.testing import write_tiny_model

SERVER_CORE, CLIENT_CORE = 0, 1
TOKENS = 50
CARRIED = 0.9
WORDS = "rain bread lamps trains moons tea wool maps salt bees ice glass paper clocks coal stairs ink wells oats"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure our load next to its peers.")
    parser.add_argument("--rates", type=float, nargs="+", default=[20, 100, 200], help="requests a second")
    parser.add_argument("--seconds", type=float, default=6, help="of arrivals, each time")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", action="store_true", help="a real vLLM too, at 4 requests a second")
    parser.add_argument("--state", type=Path, default=Path(".tidegate/bench"))
    parser.add_argument("--nice", type=int, default=0, help="of server and clients; below 0 (root) before neighbours")
    arguments = parser.parse_args()
    if arguments.nice:
        os.nice(arguments.nice)
    facts = {**machine(), "nice": arguments.nice}
    environment, place = installed(arguments.state.absolute()), place_in(arguments.state.absolute())
    clients: list[Client] = [Ours(), VllmBench(find_engine_environment().python), GuideLlm(environment)]
    with known_server(environment / "bin" / "python") as url:
        rounds = side_by_side(clients, place, url, arguments.rates, arguments.seconds, repeats=arguments.repeats)
    result: dict[str, Any] = {"machine": facts, "known_server": list(summed_up(rounds)), "runs": rounds}
    if arguments.engine:
        result["engine"] = on_an_engine(clients, place)
    print(json.dumps(result, indent=2))


def place_in(state: Path) -> Place:
    folder = state / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    prompts = folder / "prompts.jsonl"
    lines = [
        json.dumps({"prompt": f"Tell me about {one} and {other}."}) for one in WORDS.split() for other in WORDS.split()
    ]
    prompts.write_text("\n".join(lines) + "\n")
    return Place(folder, prompts, write_tiny_model(folder, seed=1))


@contextmanager
def known_server(python: Path) -> Iterator[str]:
    port = free_port()
    command = pinned(SERVER_CORE, [str(python), str(Path(__file__).with_name("known_server.py")), str(port)])
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command) as server:
        try:
            wait_for(f"{url}/v1/models", 30)
            yield url
        finally:
            server.kill()


def wait_for(url: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if httpx.get(url, trust_env=False, timeout=5).is_success:
                return
        except httpx.TransportError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"{url} does not answer") from error
        time.sleep(0.2)


def side_by_side(
    clients: Sequence[Client], place: Place, url: str, rates: Sequence[float], seconds: float, *, repeats: int
) -> list[dict[str, Any]]:
    """Each repeat begins with another client; a machine that others use too meets all alike."""
    rounds: list[dict[str, Any]] = []
    for repeat in range(repeats):
        for rate in sorted(rates):
            task = Task(url, "known", rate, seconds, TOKENS)
            first = repeat % len(clients)
            for client in [*clients[first:], *clients[:first]]:
                if not overtaxed(client, rate, rounds):
                    rounds.append({"client": client.name, "rate": rate, **one_run(client, task, place)})
    return rounds


def overtaxed(client: Client, rate: float, rounds: Sequence[dict[str, Any]]) -> bool:
    """Whether it carried too little of a lower rate, and so says nothing at this one."""
    return any(each["client"] == client.name and each["rate"] < rate and each["carried"] < CARRIED for each in rounds)


def one_run(client: Client, task: Task, place: Place) -> dict[str, Any]:
    print(f"{client.name}, {task.rate:g} requests a second", file=sys.stderr, flush=True)
    httpx.get(f"{task.url}/truth", trust_env=False)
    measured, core_time = brought(client, task, place)
    truth = httpx.get(f"{task.url}/truth", trust_env=False, timeout=30).json()
    requests = truth["requests"]
    begin, end = min(came for came, *_ in requests), max(last for _, _, last, _ in requests)
    arrivals = max(max(came for came, *_ in requests) - begin, task.seconds)
    streams = sum(last - came for came, _, last, _ in requests) / (end - begin)
    cores = core_time.between(begin, end) / (end - begin)
    ttft = Quantiles.of(first - came for came, first, *_ in requests).model_dump()
    itl = Quantiles.of((last - first) / (count - 1) for _, first, last, count in requests).model_dump()
    return {
        "requests": len(requests),
        "failed": measured.failed,
        "carried": round(len(requests) / arrivals / task.rate, 3),
        "streams": round(streams, 1),
        "cores": round(cores, 3),
        "streams_a_core": round(streams / cores, 1),
        "core_us_a_token": round(cores * (end - begin) / sum(count for *_, count in requests) * 1e6, 1),
        "ttft_error_ms": {name: round((measured.ttft[name] - ttft[name]) * 1000, 2) for name in ttft},
        "itl_error_ms": {name: round((measured.itl[name] - itl[name]) * 1000, 2) for name in itl},
        "server_cores": round(truth["cores"], 3),
        "server_late_p99_ms": round(truth["late_p99_seconds"] * 1000, 2),
    }


def brought(client: Client, task: Task, place: Place) -> tuple[Measured, CoreTime]:
    """What the client measured, and the core time of all its processes."""
    log = place.folder / "client.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            pinned(CLIENT_CORE, client.command(task, place)),
            env=environment_of(client),
            cwd=place.folder,
            stdout=errors,
            stderr=errors,
        )
        with CoreTime(process.pid) as core_time:
            process.wait()
    if process.returncode:
        raise SystemExit(f"{client.name} ended with {process.returncode}: {log.read_text()[-2000:]}")
    return client.measured(place), core_time


def summed_up(rounds: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Medians of the repeats, and the worst error of a TTFT."""
    for rate, name in sorted({(each["rate"], each["client"]) for each in rounds}):
        own = [each for each in rounds if (each["rate"], each["client"]) == (rate, name)]
        plain = (
            "carried",
            "streams",
            "cores",
            "streams_a_core",
            "core_us_a_token",
            "server_cores",
            "server_late_p99_ms",
        )
        yield {
            "rate": rate,
            "client": name,
            **{key: round(median(each[key] for each in own), 3) for key in (*plain, "server_late_p99_ms")},
            **{
                key: {at: round(median(each[key][at] for each in own), 2) for at in ("p50", "p95", "p99")}
                for key in ("ttft_error_ms", "itl_error_ms")
            },
            "ttft_error_p95_worst_ms": max(each["ttft_error_ms"]["p95"] for each in own),
        }


def on_an_engine(clients: Sequence[Client], place: Place) -> list[dict[str, Any]]:
    """A real vLLM; the first client is asked twice, because first requests are slow."""
    found = []
    with engine(place, SERVER_CORE) as url:
        wait_for(f"{url}/health", 600)
        task = Task(url, "tiny", 4, 12, 24)
        for client in [clients[0], *clients]:
            before = told_by_engine(url)
            measured, _ = brought(client, task, place)
            mean_seconds = told_by_engine(url).since(before)
            milliseconds = {name: round(seconds * 1000, 1) for name, seconds in measured.ttft.items()}
            found.append(
                {
                    "client": client.name,
                    "requests": measured.requests,
                    "ttft_ms": {**milliseconds, "mean": round(measured.ttft_mean * 1000, 1)},
                    "engine_mean_ms": round(mean_seconds * 1000, 1),
                }
            )
    return found[1:]


if __name__ == "__main__":
    main()
