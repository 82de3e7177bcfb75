"""Deliveries on real clusters with the default pace of looks: how many healthy versions pass, when slow ones are seen.

    make cluster && python benchmarks/cluster_deliveries.py --healthy 10 --slow 4

Each has a model of its own with users at 20 requests a second, stand-in engines behind a real gateway, and a real
Prometheus; `budget.poll_interval` and `metrics.scrape_interval` are not in the spec. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cluster.bed import Bed, bed
from cluster.delivered_model import RATE, DeliveredModel
from cluster.surroundings import VARIABLE, surroundings

ROOT = Path(__file__).parents[1]
SLOW = 2.2
"""Times the time to the first token, as the version that a real controller rolled back had."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=10, help="deliveries of a healthy version")
    parser.add_argument("--slow", type=int, default=4, help=f"of one whose first token takes {SLOW} times as long")
    parser.add_argument("--side-by-side", type=int, default=4)
    options = parser.parse_args()
    made = ROOT / ".cluster"
    os.environ.setdefault("KUBECONFIG", str(made / "kubeconfig.yaml"))
    os.environ.setdefault(VARIABLE, str(made / "surroundings.json"))
    around = surroundings()
    assert around is not None, f"{VARIABLE} is not set"
    # One region is enough, and leaves the machine to it.
    first = next(iter(around.clusters))
    around = around.model_copy(update={"clusters": {first: around.clusters[first]}})
    namespace = f"tidegate-test-{uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder, bed(around, namespace, Path(folder)) as regions:
        print(json.dumps(_measured(regions, options), indent=2))


def _measured(regions: Bed, options: argparse.Namespace) -> dict[str, Any]:
    with ThreadPoolExecutor(options.side_by_side) as pool:
        healthy = [pool.submit(_deliver, regions, f"healthy-{number}", 1.0) for number in range(options.healthy)]
        slow = [pool.submit(_deliver, regions, f"slow-{number}", SLOW) for number in range(options.slow)]
        told = {"healthy": [each.result() for each in healthy], "slow": [each.result() for each in slow]}
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[1],
        "requests_per_second": RATE,
        "side_by_side": options.side_by_side,
        "delivered": sum(each["outcome"] == "delivered" for each in told["healthy"]),
        "taken_back": sum(each["outcome"] == "rolled-back" for each in told["slow"]),
        **told,
    }


def _deliver(regions: Bed, name: str, times: float) -> dict[str, Any]:
    """One delivery from its begin to its end."""
    model = DeliveredModel(regions, name, [[next(iter(regions.around.clusters))]])
    model.serve(model.version("champion", ttft=0.05))
    with model.users():
        challenger = model.version(ttft=0.05 * times)
        begun = time.monotonic()
        done = model.deliver("--output", "json").finish()
        seconds = time.monotonic() - begun
    asked = model.asked()
    steps = {event.step: event.at for event in model.events("started")}
    ends = {event.step: event.at for event in (*model.events("done"), *model.events("failed"))}
    return {
        "outcome": model.delivery().outcome,
        "exit": done.code,
        "reason": model.delivery().reason,
        "seconds": round(seconds, 1),
        "steps": {step: round((ends[step] - at).total_seconds(), 1) for step, at in steps.items() if step in ends},
        "requests": len(asked),
        "on_the_new_version": sum(each.version == challenger for each in asked),
        "failed": sum(each.failed for each in asked),
    }


if __name__ == "__main__":
    main()
