"""How long commands take whose answer is at hand, as JSON; seconds of wall time, each run a process of its own.

    .venv/bin/python benchmarks/command_time.py --before COMMIT

MLflow is a file of this machine, opened by each process itself, and then a server of this machine. `stage step` asks
for a step that is done: what is left is what every step of a workflow pays. With `--before` each run is followed by one
of that commit's tree, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes.clusters.served import clusters, delivery_to
from fakes.services.chat_servers import engines
from figures import machine
from step_overhead import MODEL, REGION, Place, file, prepare, server
from trees import ROOT, archived

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tidegate.cli import main; sys.exit(main())"
BEFORE = "_before"


@dataclass
class Times:
    """Of one command."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the commands whose answer is at hand.")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--before", help="a commit")
    parser.add_argument("--stores", nargs="*", choices=["file", "server"], default=["file", "server"], help="MLflow as")
    options = parser.parse_args()
    ran_on = machine()
    with tempfile.TemporaryDirectory(prefix="tidegate-commands-") as folder:
        trees = {"": ROOT}
        if options.before:
            trees[BEFORE] = archived(options.before, Path(folder, "before"))
        found = {}
        for store in [each for each in (file, server) if each.__name__ in options.stores]:
            place = Path(folder, store.__name__)
            place.mkdir()
            with store(place) as opened, delivery(opened) as carrier:
                found[store.__name__] = measured(carrier, trees, options.runs)
    after = {"load_1m_after": round(os.getloadavg()[0], 1)}
    print(json.dumps({"machine": ran_on | after, "runs": options.runs, "medians": found}, indent=2))


@dataclass(frozen=True)
class Carrier:
    """A delivery whose first step is done, and how its commands are run."""

    place: Place
    environment: dict[str, str]
    commands: dict[str, list[str]]


@contextmanager
def delivery(place: Place) -> Iterator[Carrier]:
    """Over a simulated API server, with two small versions in the registry."""
    prepare(place)
    with engines(place.folder / "1" / "model") as served:
        spec = delivery_to([[REGION]], name=MODEL, engine=served.url)
        (place.folder / "delivery.yaml").write_text(yaml.safe_dump(spec))
        with clusters(spec, place.folder) as there:
            kubeconfig = str(there.servers.kubeconfig)
            environment = {"MLFLOW_TRACKING_URI": place.uri, "KUBECONFIG": kubeconfig, "PYTHONDONTWRITEBYTECODE": ""}
            state = ["--state", "state"]
            carrier = Carrier(place, environment, {})
            plan = json.loads(
                run(carrier, ROOT, ["stage", "open", "-f", "delivery.yaml", "--output", "json", *state], Times())
            )
            step = ["stage", "step", plan["steps"][0]["id"], "--delivery", plan["delivery"], *state]
            run(carrier, ROOT, step, Times())
            gates = ROOT / "examples" / "gates"
            carrier.commands.update(
                {
                    "--help": ["--help"],
                    "--version": ["--version"],
                    "plan": ["plan", "delivery.yaml", *state],
                    "status": ["status", "delivery.yaml", *state],
                    "status --last": ["status", "delivery.yaml", "--last", "20", *state],
                    "gate check": [
                        *("gate", "check", str(gates / "gates.yaml"), str(gates / "evidence.jsonl")),
                    ],
                    "model add": ["model", "add", "other", str(place.folder / "1" / "model"), *state],
                    "stage step": step,
                }
            )
            yield carrier


def measured(carrier: Carrier, trees: dict[str, Path], runs: int) -> dict[str, dict[str, float]]:
    """The medians of each command in each tree that has it; the first run of all fills the caches."""
    found: dict[str, dict[str, float]] = {}
    for name, words in carrier.commands.items():
        times = {each: Times() for each, tree in trees.items() if answers(carrier, tree, words)}
        for _ in range(runs):
            for each, of in times.items():
                run(carrier, trees[each], words, of)
        found[name] = {
            f"{what}{each}": round(value, 2)
            for each, of in times.items()
            for what, value in (
                ("wall_seconds", median(of.wall)),
                ("cpu_seconds", median(of.cpu)),
            )
        }
    return found


def answers(carrier: Carrier, tree: Path, words: list[str]) -> bool:
    """Whether that tree has the command; an older one may lack it, this one must not."""
    try:
        run(carrier, tree, words, Times())
    except AssertionError as failed:
        if tree == ROOT:
            raise
        print(f"not before: {failed}", file=sys.stderr)
        return False
    return True


def run(carrier: Carrier, tree: Path, words: list[str], times: Times) -> str:
    """One command to its end; what it printed."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START, str(tree), *words],
        cwd=carrier.place.folder,
        env=os.environ | carrier.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, complaints = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    times.wall.append(time.perf_counter() - begun)
    process.returncode = os.waitstatus_to_exitcode(status)
    times.cpu.append(usage.ru_utime + usage.ru_stime)
    # The example's gate fails, which is an answer.
    assert process.returncode in {0, 1}, (words, process.returncode, out, complaints)
    return out


if __name__ == "__main__":
    main()
