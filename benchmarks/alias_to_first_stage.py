"""How long after an alias was set its delivery begins, as JSON.

    .venv/bin/python benchmarks/alias_to_first_stage.py

A real MLflow server, which sends real webhooks to a real `tidegate serve`, which starts real `tidegate deliver`
processes. A delivery is found by looking at the registry every 5 or 30 seconds, the alias being set at any moment
between two looks, or heard of by a webhook. Seconds since the alias was set, until
    process  the delivery's process begins
    open     its ledger is open, and has the plan
    step     the first step begins
The versions have no engine image, so that each delivery ends right there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.clusters.served import clusters, delivery_to, mark_images, write_golden_set
from fakes.services.chat_servers import engines
from fakes.services.mlflow_server import TriggerGround
from fakes.services.shared import begin_sharing, end_sharing

from registry.versions import MlflowRegistry

MODEL = "support-llm"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the way from an alias to a delivery's first step.")
    parser.add_argument("--runs", type=int, default=10, help="deliveries of each kind")
    parser.add_argument("--looks", type=int, nargs="*", default=[5, 30], help="seconds between two, without webhooks")
    options = parser.parse_args()
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    load = [round(os.getloadavg()[0], 1)]
    # A new one each time: a version that was delivered a moment ago is no new request.
    versions = 1 + options.runs * (1 + len(options.looks))
    challengers = iter(range(2, versions + 1))
    with tempfile.TemporaryDirectory(prefix="tidegate-alias-") as folder, ready(Path(folder), versions) as ground:
        # The webhook last: MLflow keeps it, and the one who listens there hears it.
        found = {
            f"every {seconds} s": by_looking(ground, take(challengers, options.runs), seconds)
            for seconds in options.looks
        }
        found["webhook"] = by_webhook(ground, take(challengers, options.runs))
    load.append(round(os.getloadavg()[0], 1))
    result = {"machine": machine | {"load_before_and_after": load}, "runs": options.runs}
    print(json.dumps(result | {kind: summed(runs) for kind, runs in found.items()}, indent=2))


def take(challengers: Iterator[int], count: int) -> list[int]:
    """The next so many."""
    return list(itertools.islice(challengers, count))


@contextmanager
def ready(folder: Path, versions: int) -> Iterator[TriggerGround]:
    """MLflow with a champion and its successors, and a spec for a region that is simulated."""
    begin_sharing()
    try:
        ground = TriggerGround(folder, MODEL)
        with redirect_stdout(sys.stderr):
            ground.prepare(versions=versions)
            mark_images(MlflowRegistry(ground.uri), MODEL)
        write_golden_set(folder)
        with engines(ground.version_folder(1) / "model") as served:
            spec = delivery_to([["eu-west-1"]], name=MODEL, engine=served.url)
            (folder / "delivery.yaml").write_text(yaml.safe_dump(spec))
            with clusters(spec, folder) as there:
                ground.environment["KUBECONFIG"] = str(there.servers.kubeconfig)
                yield ground
    finally:
        end_sharing()


def by_webhook(ground: TriggerGround, versions: Sequence[int]) -> list[dict[str, float]]:
    """Nobody looks for an hour: what starts a delivery is the webhook."""
    with ground.serving(*ground.register, every="1h"):
        ground.until(lambda: "test event was answered 202" in ground.said())
        return [one(ground, version) for version in versions]


def by_looking(ground: TriggerGround, versions: Sequence[int], every: int) -> list[dict[str, float]]:
    """No webhook reaches anybody."""
    found = []
    with ground.serving(every=f"{every}s"):
        for version in versions:
            time.sleep(random.uniform(0, every))
            found.append(one(ground, version))
    return found


def one(ground: TriggerGround, version: int) -> dict[str, float]:
    """Set the alias, and let the delivery end; returns the seconds until each moment."""
    logs, before = ground.folder / ".tidegate" / "serve" / "logs", len(ground.summaries())
    processes = started(logs)
    begun = time.time()
    ground.set_alias(version)
    while started(logs) == processes:
        time.sleep(0.005)
    process = time.time()
    ground.until(lambda: len(ground.summaries()) > before and ground.summaries()[0].ended)
    events = ground.deliveries.events(ground.summaries()[0].id)
    opened, begun_step, *_ = [event.at.timestamp() for event in events if event.kind == "started"]
    moments = {"process": process, "open": opened, "step": begun_step}
    return {name: moment - begun for name, moment in moments.items()}


def started(logs: Path) -> int:
    """How many processes were begun."""
    return len(list(logs.glob("*.log")))


def summed(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The middle, and what nine of ten are below."""
    both = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        high = quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
        both[name] = {"median_s": round(median(values), 2), "p90_s": round(high, 2)}
    return both


if __name__ == "__main__":
    main()
