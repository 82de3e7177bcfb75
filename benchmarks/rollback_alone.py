"""From the start of `tidegate rollback` to the abort's arrival at every region's API server, as JSON; in seconds.

Each run is a process of its own, with a kubeconfig, an empty home and an MLflow that takes connections and never
answers. The regions are simulated API servers on sockets with TLS, half of their users on a canary. What is measured
ends when the last region's server has the request, so it holds Python's start, every import, the kubeconfig, and the
looks before the abort.

    .venv/bin/python benchmarks/rollback_alone.py --regions 3
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.clusters.served import Clusters, clusters, delivery_to
from fakes.kube.requests import WRITES, Call
from fakes.services.shared import FOLDER

WEIGHT = 50


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how soon a rollback's first request leaves.")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--regions", type=int, default=2)
    options = parser.parse_args()
    names = [f"region-{number}" for number in range(1, options.regions + 1)]
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder, socket.create_server(("127.0.0.1", 0)) as mute:
        os.environ[FOLDER] = folder
        spec = delivery_to([names], name="support-llm", engine="https://llm.example")
        (Path(folder) / "delivery.yaml").write_text(yaml.safe_dump(spec))
        with clusters(spec, Path(folder)) as there:
            there.serve("1")
            uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
            seconds = [_run(Path(folder), there, names, uri) for _ in range(options.runs)]
    print(
        json.dumps(
            {
                "regions": options.regions,
                "runs": options.runs,
                "median_s": round(median(seconds), 3),
                "max_s": max(seconds),
                "all_s": seconds,
                "cpus": os.cpu_count(),
                "load": os.getloadavg()[0],
                "python": platform.python_version(),
            },
            indent=2,
        )
    )


def _run(folder: Path, there: Clusters, names: list[str], uri: str) -> float:
    there.try_out("2", WEIGHT)
    arrived: dict[str, float] = {}
    for name in names:
        there.servers.do(lambda name=name: _note(there, name, arrived))
    environment = _environment(folder, there, uri)
    command = [str(Path(sys.executable).parent / "tidegate"), "rollback", str(folder / "delivery.yaml")]
    begun = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder / "home", env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        while len(arrived) < len(names) and process.poll() is None:
            time.sleep(0.005)
        code = process.wait()
    if code != 0 or len(arrived) < len(names):
        raise SystemExit(f"the rollback ended with {code}, and {len(arrived)} of {len(names)} regions were asked")
    return round(max(arrived.values()) - begun, 3)


def _note(there: Clusters, name: str, arrived: dict[str, float]) -> None:
    """Write down when the abort comes: the first write to the Rollout's status."""

    class Calls(list[Call]):
        def append(self, call: Call) -> None:
            super().append(call)
            if (call.plural, call.subresource) == ("rollouts", "status") and call.verb in WRITES and len(self) > before:
                arrived.setdefault(name, time.monotonic())

    api = there.servers.api(name)
    before = len(api.calls)
    api.calls = Calls(api.calls)


def _environment(folder: Path, there: Clusters, uri: str) -> Mapping[str, str]:
    (folder / "home").mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "KUBECONFIG": str(there.servers.kubeconfig),
        "MLFLOW_TRACKING_URI": uri,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }


if __name__ == "__main__":
    main()
