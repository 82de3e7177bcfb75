"""What the steps of a delivery cost by themselves, as JSON.

    .venv/bin/python benchmarks/step_overhead.py

The same delivery is carried by `tidegate deliver`, one process, and by `tidegate stage`, a process for each step; each
with MLflow as a server and as a file of this machine. The region is a simulated API server with its controller, and its
engine answers at once: what is left is our own work, and waiting for the region, which is told apart. A step's own time
is that of its process without what lies between `started` and `done` in the ledger.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.clusters.served import clusters, delivery_to, mark_images, write_golden_set
from fakes.services.chat_servers import engines
from fakes.services.mlflow_server import TIDEGATE, mlflow_server

from registry.deliveries import MlflowDeliveries
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.testing import write_tiny_model

MODEL, REGION = "support-llm", "eu-west-1"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what the steps of a delivery cost by themselves.")
    parser.add_argument("--runs", type=int, default=3, help="deliveries of each kind")
    parser.add_argument("--stores", nargs="*", choices=["server", "file"], default=["server", "file"], help="MLflow as")
    options = parser.parse_args()
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    load = round(os.getloadavg()[0], 1)
    # Carried in turn, so that what else the machine does meets all kinds alike.
    stores = [store for store in (server, file) if store.__name__ in options.stores]
    kinds = [(store, carry) for store in stores for carry in (by_deliver, by_stages)]
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.runs):
        for store, carry in kinds:
            with tempfile.TemporaryDirectory(prefix="tidegate-steps-") as folder, store(Path(folder)) as place:
                found.setdefault(f"{carry.__name__} {store.__name__}", []).append(carried(place, carry))
    result = {"machine": machine | {"load_before": load}, "runs": options.runs}
    print(json.dumps(result | {kind: summed(runs) for kind, runs in found.items()}, indent=2))


@dataclass(frozen=True)
class Place:
    """Where a delivery happens."""

    folder: Path
    uri: str
    requests: Callable[[], int]
    """That MLflow's server has answered by now."""


@contextmanager
def server(folder: Path) -> Iterator[Place]:
    """MLflow as a process of its own."""
    with mlflow_server(folder / "mlflow") as uri:
        yield Place(folder, uri, lambda: (folder / "mlflow" / "server.log").read_text().count('HTTP/1.1"'))


@contextmanager
def file(folder: Path) -> Iterator[Place]:
    """MLflow's SQLite file in the state folder, opened by each process itself."""
    yield Place(folder, embedded_uri(folder / "state"), lambda: 0)


@dataclass(frozen=True)
class Cost:
    """Of one process."""

    command: str
    seconds: float
    processor_seconds: float
    memory_mib: float
    requests: int


Run = Callable[..., tuple[Cost, str]]


def carried(place: Place, carry: Callable[[Run], list[Cost]]) -> dict[str, Any]:
    """One delivery from nothing; what each of its processes took."""
    prepare(place)
    with engines(place.folder / "1" / "model") as served:
        spec = delivery_to([[REGION]], name=MODEL, engine=served.url)
        (place.folder / "delivery.yaml").write_text(yaml.safe_dump(spec))
        with clusters(spec, place.folder) as there:
            environment = {"MLFLOW_TRACKING_URI": place.uri, "KUBECONFIG": str(there.servers.kubeconfig), "CI": "1"}
            costs = carry(lambda *words: run(place, environment, *words))
    deliveries = MlflowDeliveries(place.uri)
    (delivery,) = deliveries.deliveries(MODEL)
    assert delivery.outcome == "delivered", delivery.reason
    at = {(event.step, event.kind): event.at for event in deliveries.events(delivery.id)}
    inside = {
        step: (at[step, "done"] - begun).total_seconds()
        for (step, kind), begun in at.items()
        if kind == "started" and step != "delivery"
    }
    return {"processes": [asdict(cost) for cost in costs], "inside": inside}


def prepare(place: Place) -> None:
    """A champion and a challenger, whose images nobody pulls."""
    registry = MlflowRegistry(place.uri)
    for seed, alias in ((1, "champion"), (2, "challenger")):
        registry.register(MODEL, write_tiny_model(place.folder / str(seed), seed=seed), alias=alias)
    mark_images(registry, MODEL)
    write_golden_set(place.folder)


def by_deliver(run: Run) -> list[Cost]:
    """All steps in one process."""
    return [run("deliver", "delivery.yaml")[0]]


def by_stages(run: Run) -> list[Cost]:
    """A process for each step, as in a workflow."""
    opened, out = run("stage", "open", "-f", "delivery.yaml", "--output", "json")
    plan = json.loads(out)
    costs = [opened]
    for step in plan["steps"]:
        costs.append(run("stage", "step", step["id"], "--delivery", plan["delivery"])[0])
    return [*costs, run("stage", "close", "--delivery", plan["delivery"])[0]]


def run(place: Place, environment: Mapping[str, str], *words: str) -> tuple[Cost, str]:
    """One command to its end; what it took, and what it printed."""
    before, begun = place.requests(), time.monotonic()
    process = subprocess.Popen(
        [str(TIDEGATE), *words, "--state", "state"],
        cwd=place.folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (words, process.returncode, out)
    cost = Cost(
        command=" ".join(words[:3] if words[0] == "stage" else words[:1]),
        seconds=time.monotonic() - begun,
        processor_seconds=usage.ru_utime + usage.ru_stime,
        memory_mib=usage.ru_maxrss / 1024,
        requests=place.requests() - before,
    )
    return cost, out


def summed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each number over all runs; a delivery whole, then its processes one by one."""
    whole = {
        "steps": len(runs[0]["inside"]),
        "seconds": mid(sum(each["seconds"] for each in run["processes"]) for run in runs),
        "inside_steps_seconds": mid(sum(run["inside"].values()) for run in runs),
        "processor_seconds": mid(sum(each["processor_seconds"] for each in run["processes"]) for run in runs),
        "requests": mid(sum(each["requests"] for each in run["processes"]) for run in runs),
    }
    whole["own_seconds_a_step"] = round((whole["seconds"] - whole["inside_steps_seconds"]) / whole["steps"], 2)
    whole["processor_seconds_a_step"] = round(whole["processor_seconds"] / whole["steps"], 2)
    processes = {}
    for number, first in enumerate(runs[0]["processes"]):
        step = first["command"].removeprefix("stage step ")
        same = [run["processes"][number] for run in runs]
        own = [each["seconds"] - run["inside"].get(step, 0.0) for each, run in zip(same, runs, strict=True)]
        numbers = {name: mid(each[name] for each in same) for name in first if name != "command"}
        processes[first["command"]] = numbers | ({"own_seconds": mid(own)} if step in runs[0]["inside"] else {})
    return {"delivery": whole, "processes": processes}


def mid(values: Any) -> float:
    return round(median(values), 2)


if __name__ == "__main__":
    main()
