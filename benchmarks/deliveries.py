"""Whole deliveries of the demo's models, with real engines, proxies and users, as JSON.

    .venv/bin/python benchmarks/deliveries.py --healthy 10

The healthy version 2 is delivered again and again, rolled back by `tidegate rollback` in between; then the broken
version 3 and the slow version 4. For each: how it ended, how long it took, by which gate and after how many
requests of the canary; and what became of all users' requests. Needs `make demo` to have run once, which makes the
models.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "demo"))

import run
from run import NAME, fleet, register, say, tidegate, users

from engine_images.accelerators import Accelerator
from gates.evidence.request_record import RequestRecord
from gates.transcript import BatchLine, read
from pipelines.events.listeners import EventFile
from pipelines.events.state import state_of
from registry.deliveries import MlflowDeliveries
from registry.ports import embedded_uri


def main() -> None:
    parser = argparse.ArgumentParser(description="Deliver the demo's models and tell how each ended.")
    parser.add_argument("--healthy", type=int, default=10, help="deliveries of version 2")
    parser.add_argument("--bad", type=int, default=1, help="deliveries of versions 3 and 4, each")
    parser.add_argument("--bad-versions", nargs="+", default=["3", "4"], choices=["3", "4"], help="which of them")
    parser.add_argument("--waves", type=int, default=2, help="of the demo's two; each has one region")
    parser.add_argument(
        "--accelerator",
        default="cpu",
        choices=list(map(str, Accelerator)),
        metavar="NAME",
        help="cpu, or this machine's GPU",
    )
    parser.add_argument("--state", type=Path, default=Path(".tidegate/deliveries"))
    parser.add_argument("--models", type=Path, default=Path(".tidegate/models"))
    parser.add_argument("--to", type=Path, default=Path("deliveries.json"))
    options = parser.parse_args()
    register(options.state, options.models)
    found = []
    with spec(options.waves, Accelerator(options.accelerator)), fleet(options.state), users(options.state):
        for version in ["2"] * options.healthy + options.bad_versions * options.bad:
            found.append(one(version, options.state) | {"waves": options.waves})
            say(json.dumps(found[-1]))
            told = summary(found) | {"users": of_users(options.state)}
            options.to.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(options.to.read_text(encoding="utf-8"))


@contextmanager
def spec(waves: int, accelerator: Accelerator) -> Iterator[None]:
    """The demo's own spec with its first waves only; next to it, because paths in it are relative."""
    whole = run.spec_on(accelerator)
    data = yaml.safe_load(whole.read_text(encoding="utf-8"))
    data["regions"]["waves"] = data["regions"]["waves"][:waves]
    part = whole.with_name("first-waves.yaml")
    part.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    run.SPEC = str(part)
    try:
        yield
    finally:
        part.unlink()


def one(version: str, state: Path) -> dict[str, Any]:
    """Deliver a version; afterwards version 1 serves again."""
    say(f"version {version}")
    tidegate("model", "alias", NAME, version, "challenger", "--state", str(state))
    code = tidegate("deliver", run.SPEC, "--state", str(state))
    last = MlflowDeliveries(embedded_uri(state)).deliveries(NAME)[0]
    folder = state / "deliveries" / last.id
    if code == 0:
        tidegate("rollback", run.SPEC, "--state", str(state))
    return {"version": version, "exit_code": code, "outcome": last.outcome, "reason": last.reason} | measured(folder)


def measured(folder: Path) -> dict[str, Any]:
    """From the events and the evidence of one delivery."""
    story = state_of(EventFile(folder / "events.jsonl").read())
    assert story.started, "a delivery without a start"
    seconds = {step.id: round(step.seconds(step.ended), 1) for step in story.steps if step.started and step.ended}
    return {
        "seconds": round(story.elapsed_seconds(story.started), 1),
        "steps_seconds": seconds,
        "canary_seen": {path.stem: seen(path) for path in sorted((folder / "evidence").glob("*.jsonl"))},
        "decided_by": story.deciding.name if story.deciding else None,
    }


def seen(transcript: Path) -> dict[str, int]:
    """Requests of the canary and pairs, in all batches of a trial."""
    batches = list(batches_of(transcript))
    requests = sum(pod.requests for batch in batches for pod in batch.batch.arms if pod.arm == "canary")
    return {"requests": requests, "pairs": sum(len(batch.batch.pairs) for batch in batches)}


def batches_of(transcript: Path) -> Iterator[BatchLine]:
    with transcript.open(encoding="utf-8") as lines:
        yield from (line for line in read(lines, file=transcript.name) if isinstance(line, BatchLine))


def of_users(state: Path) -> dict[str, int]:
    """What became of every request that was over by now."""
    # The last line may be half written.
    *lines, _ = (state / "traffic" / f"{NAME}.jsonl").read_text(encoding="utf-8").split("\n")
    records = [RequestRecord.model_validate_json(line) for line in lines]
    cut = sum(record.cut for record in records)
    return {"requests": len(records), "failed": sum(not record.ok for record in records), "cut": cut}


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    healthy = [each for each in found if each["version"] == "2"]
    accepted = sum(each["outcome"] == "delivered" for each in healthy)
    return {"machine": machine, "healthy": len(healthy), "accepted": accepted, "deliveries": found}


if __name__ == "__main__":
    main()
