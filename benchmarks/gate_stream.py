"""How fast `tidegate gate stream` judges, and how much memory it keeps, as JSON.

    .venv/bin/python benchmarks/gate_stream.py --batches 3000 --longest 100000

Speed: the real command, pinned to one core, is fed batches of 1,000 samples through a pipe and read line by
line; next to it the same trial in this process, without text. Memory: batches of 40 samples with everything a
batch may hold (buckets, scores, pairs), and pods that come and go, so that whatever could grow would.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gates.evidence.batch import Batch
from gates.reports.gate_file import GateFile
from gates.reports.verdict_stream import as_lines
from gates.sequential_test import SequentialTest
from tidegate.core.spec import load_spec

TIDEGATE = Path(sys.executable).with_name("tidegate")
WARM = 50
SAMPLES, FEW_SAMPLES = 1000, 40
DISTINCT = 200
"""Batches that are drawn; they come again and again under new times."""
LIVES = 100
"""Batches after which every pod has another name."""
PLAIN = """
apiVersion: tidegate/v1
kind: Gates
gates: {latency: {}, errors: {}}
"""
EVERYTHING = """
apiVersion: tidegate/v1
kind: Gates
gates:
  latency: {}
  errors: {}
  agreement: {max_ttft_increase: 20%, min_same_language: 0.9, min_same_finish: 0.9, max_length_change: 30%}
  judge: {}
sources: {latency: [users, probe], errors: [users, probe], judge: [users, probe]}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure tidegate gate stream.")
    parser.add_argument("--batches", type=int, default=3000, help="of 1,000 samples, for the speed")
    parser.add_argument("--longest", type=int, default=100_000, help="batches of 40 samples, for the memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, everything = Path(folder, "plain.yaml"), Path(folder, "everything.yaml")
        plain.write_text(PLAIN)
        everything.write_text(EVERYTHING)
        result = {
            "machine": machine(),
            "through_the_command": through_the_command(plain, arguments.batches),
            "in_process": in_process(plain, arguments.batches),
            "memory": memory(everything, arguments.longest),
        }
    print(json.dumps(result, indent=2))


def machine() -> dict[str, Any]:
    cpu = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "processor": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def through_the_command(gates: Path, count: int) -> dict[str, Any]:
    """Per minute by the clock, and by the time that the core really gave."""
    stream = Stream(gates)
    stream.feed(lines(0, WARM, plain_batches()))
    busy, began = stream.cpu_seconds(), time.perf_counter()
    stream.feed(lines(WARM, count, plain_batches()))
    wall, busy = time.perf_counter() - began, stream.cpu_seconds() - busy
    last = json.loads(stream.last)
    assert last["verdicts"] == verdicts_in_process(gates, WARM + count), "the pipe changed a verdict"
    stream.close()
    return speeds(count, wall, busy)


def in_process(gates: Path, count: int) -> dict[str, Any]:
    """The trial alone: batches are read before the clock starts."""
    trial = SequentialTest(load_spec(gates, GateFile).terms())
    batches = [Batch.model_validate_json(line) for line in lines(0, count, plain_batches())]
    busy, began = time.process_time(), time.perf_counter()
    for batch in batches:
        trial.take(batch)
        trial.verdicts()
    return speeds(count, time.perf_counter() - began, time.process_time() - busy)


def verdicts_in_process(gates: Path, count: int) -> list[Any]:
    trial = SequentialTest(load_spec(gates, GateFile).terms())
    for line in lines(0, count, plain_batches()):
        trial.take(Batch.model_validate_json(line))
    return [json.loads(verdict.model_dump_json()) for verdict in as_lines(trial.verdicts())]


def speeds(count: int, wall: float, busy: float) -> dict[str, Any]:
    return {
        "batches": count,
        "samples_each": SAMPLES,
        "batches_per_minute": round(count / wall * 60),
        "batches_per_minute_of_core_time": round(count / busy * 60),
        "milliseconds_of_core_each": round(busy / count * 1000, 2),
    }


def memory(gates: Path, longest: int) -> dict[str, Any]:
    """Peak resident memory of the command after so many batches, in MB."""
    stream, done, found = Stream(gates), 0, {}
    batches = rich_batches()
    began = time.perf_counter()
    for upto in [size for size in (1_000, 10_000, 30_000, 100_000) if size < longest] + [longest]:
        stream.feed(lines(done, upto - done, batches))
        done, found[f"{upto}_batches"] = upto, round(stream.peak_bytes() / 1e6, 1)
    seconds = time.perf_counter() - began
    stream.close()
    return {"samples_each": FEW_SAMPLES, "peak_megabytes": found, "seconds": round(seconds)}


class Stream:
    """The command as a process of its own on one core."""

    def __init__(self, gates: Path) -> None:
        core = max(os.sched_getaffinity(0))
        self._process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), TIDEGATE, "gate", "stream", gates],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._watched = psutil.Process(self._process.pid)
        self.last = b""

    def feed(self, evidence: Iterator[bytes]) -> None:
        """Return when every line is answered."""
        assert self._process.stdin and self._process.stdout
        told = threading.Event()
        sent = [0]
        reader = threading.Thread(target=self._read, args=(sent, told))
        reader.start()
        for line in evidence:
            self._process.stdin.write(line)
            sent[0] += 1
        self._process.stdin.flush()
        told.set()
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        reader.join()

    def _read(self, sent: Sequence[int], told: threading.Event) -> None:
        assert self._process.stdout
        answered = 0
        while not (told.is_set() and answered == sent[0]):
            if answered < sent[0]:
                self.last = self._process.stdout.readline()
                answered += 1
            else:
                time.sleep(0.001)

    def cpu_seconds(self) -> float:
        times = self._watched.cpu_times()
        return times.user + times.system

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def lines(begin: int, count: int, batches: Sequence[Callable[[int], dict[str, Any]]]) -> Iterator[bytes]:
    """Batches as text, ten seconds apart."""
    for at in range(begin, begin + count):
        yield json.dumps({"time": 1e9 + 10 * at, **batches[at % len(batches)](at)}).encode() + b"\n"


def plain_batches() -> Sequence[Callable[[int], dict[str, Any]]]:
    """5 % of the requests on the canary, two stable pods."""
    rng = np.random.default_rng(3)
    shares = (("stable", "a", 0.5), ("stable", "b", 0.45), ("canary", "c", 0.05))
    drawn = [[pod(rng, arm, name, round(SAMPLES * share)) for arm, name, share in shares] for _ in range(DISTINCT)]
    return [partial(_again, arms) for arms in drawn]


def _again(arms: list[dict[str, Any]], _: int) -> dict[str, Any]:
    return {"arms": arms}


def rich_batches() -> Sequence[Callable[[int], dict[str, Any]]]:
    """Users' and a probe's in turn."""
    rng = np.random.default_rng(4)

    def users(at: int) -> dict[str, Any]:
        arms = [pod(rng, "stable", f"s{at // LIVES}.{number}", FEW_SAMPLES // 4) for number in range(3)]
        arms.append(pod(rng, "canary", f"c{at // LIVES}", FEW_SAMPLES // 4))
        for each in arms:
            each["scores"] = rng.random(2).tolist()
        return {"arms": arms, "missing": {"itl": f"not in batch {at}"}}

    def probe(_: int) -> dict[str, Any]:
        return {"source": "probe", "pairs": [pair(rng) for _ in range(5)]}

    return [users, probe]


def pod(rng: np.random.Generator, arm: str, name: str, requests: int) -> dict[str, Any]:
    times = np.round(rng.lognormal(-1.5, 0.5, requests), 6).tolist()
    return {"arm": arm, "pod": name, "requests": requests, "errors": int(rng.binomial(requests, 0.002)), "ttft": times}


def pair(rng: np.random.Generator) -> dict[str, Any]:
    replies = [
        {"ttft": 0.1 + rng.random(), "score": rng.random(), "output_tokens": int(rng.integers(5, 50)), "language": "en"}
        for _ in range(2)
    ]
    return {"stable": replies[0], "canary": replies[1], "similarity": 0.6 + 0.4 * rng.random()}


if __name__ == "__main__":
    main()
