"""All that is to be measured of engines where there is a GPU, part by part, as JSON; `benchmarks/gpu.sh` runs it.

    .venv/bin/python -m benchmarks.gpu.run --to gpu-results --model DIR --model DIR
    .venv/bin/python -m benchmarks.gpu.run --to gpu-results --small --part starts --part fit

Each part is a process of its own with a time limit, and writes `PART.json` and `PART.log` into the folder. A part that
is measured is not run again without `--again`; one that fails has its error in its JSON, and the others go on. What is
left out is there by name, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import delivery, fit, misses, starts, throughput
from benchmarks.gpu.engines import order_of
from benchmarks.gpu.hardware import accelerator_here, gpu_names, ran_on
from benchmarks.gpu.models import demo_models, named, tiny_models
from benchmarks.gpu.reports import MEASURED, PartReport, close, is_measured, read_report
from benchmarks.gpu.task import TOTAL_SECONDS, Task, TimeLimit, part_seconds
from engine_images.accelerators import Accelerator
from engine_images.adapters.builder import key_of
from tidegate.core.errors import TidegateError

PARTS = {
    "starts": starts.measure,
    "throughput": throughput.measure,
    "misses": misses.measure,
    "fit": fit.measure,
    "delivery": delivery.measure,
}

RUNS, SMALL_RUNS = 5, 1

ENDING_SECONDS = 90.0
"""For a part that was told to end: engines, users and fleets end in good order."""

MARGIN_SECONDS = 20.0
"""What takes longer than what was measured before is not ended for it."""

LEAST_SECONDS = 60.0
"""With less, a part is not begun."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    to: Path
    models: tuple[Path, ...]
    demo_models: Path
    small: bool
    again: bool
    runs: int
    parts: tuple[str, ...]
    seconds: float
    only: str | None
    """The part that this process measures; None for the one that starts the parts."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 all is measured, 1 something is not, else that of the error that kept it from beginning."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = parse(arguments)
    try:
        accelerator = accelerator_here(gpu_names(), small=options.small)
        named(options.models)
        options.to.mkdir(parents=True, exist_ok=True)
        if options.only:
            return asyncio.run(one(options, accelerator, options.only))
        return every(options, arguments)
    except TidegateError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("gpu: interrupted; what is measured is kept", file=sys.stderr)
        return 130


def parse(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="benchmarks/gpu.sh", description="Measure engines where there is a GPU.")
    option = parser.add_argument
    option("--to", type=Path, default=Path("gpu-results"), help="folder for the JSON; default: gpu-results")
    option("--model", type=Path, action="append", default=[], help="a Hugging Face directory; twice for two models")
    option("--demo-models", type=Path, default=Path(".tidegate/models"), help="where the demo's versions are, or go")
    option("--small", action="store_true", help="tiny models and few runs; without a GPU it runs on a CPU")
    option("--again", action="store_true", help="measure what is measured already, too")
    option("--runs", type=_count, help=f"starts of each kind; default: {RUNS}, with --small {SMALL_RUNS}")
    option("--part", choices=PARTS, action="append", help="measure this one only; may be repeated")
    option("--seconds", type=float, default=TOTAL_SECONDS, help="for everything; default: 2400")
    option("--only", choices=PARTS, help=argparse.SUPPRESS)
    found = parser.parse_args(argv)
    return Options(
        to=found.to,
        models=tuple(found.model),
        demo_models=found.demo_models,
        small=found.small,
        again=found.again,
        runs=found.runs or (SMALL_RUNS if found.small else RUNS),
        parts=tuple(part for part in PARTS if not found.part or part in found.part),
        seconds=found.seconds,
        only=found.only,
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {number}; expected 1 or more")
    return number


def every(options: Options, arguments: Sequence[str]) -> int:
    """One part after the other, each in a process that ends when its time is over."""
    limit = TimeLimit(options.seconds)
    waiting = [part for part in options.parts if options.again or not is_measured(options.to / f"{part}.json")]
    for part in options.parts:
        if part not in waiting:
            print(f"{part}: measured before ({options.to / f'{part}.json'}); --again measures it again")
    while waiting:
        part, *waiting = waiting
        in_process(part, options.to, arguments, part_seconds(part, waiting, limit.left))
        print(line_of(part, options.to), flush=True)
    return 0 if all(is_measured(options.to / f"{part}.json") for part in options.parts) else 1


def in_process(part: str, to: Path, arguments: Sequence[str], seconds: float) -> None:
    """Measure a part; whatever becomes of its process, its JSON says so."""
    file = to / f"{part}.json"
    file.unlink(missing_ok=True)
    if seconds < LEAST_SECONDS:
        close(file, part, f"not begun: {max(seconds, 0):.0f} s were left of all")
        return
    print(f"{part}: at most {seconds:.0f} s ({to / f'{part}.log'})", flush=True)
    command = [sys.executable, "-m", "benchmarks.gpu.run", *arguments, "--only", part, f"--seconds={seconds:.0f}"]
    with (to / f"{part}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            close(file, part, f"stopped: not done after {seconds:.0f} s")
        except BaseException:
            # Interrupted: engines must not stay.
            _end(process)
            close(file, part, "interrupted")
            raise
    if read_report(file).get("state") not in {MEASURED, "failed"}:
        close(file, part, f"its process ended with exit code {process.returncode}; see {part}.log")


def _end(process: subprocess.Popen[bytes]) -> None:
    """What it has started ends with it, in good order first."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def line_of(part: str, to: Path) -> str:
    """What became of it, for a person."""
    report = read_report(to / f"{part}.json")
    after = f" in {report['seconds']:.0f} s" if "seconds" in report else ""
    errors = "".join(f"\n  {what}: {why}" for what, why in report.get("errors", {}).items())
    left_out = f", {len(report['left_out'])} left out" if report.get("left_out") else ""
    return f"{part}: {report['state']}{after}{left_out}{errors}"


async def one(options: Options, accelerator: Accelerator, part: str) -> int:
    """Measure a part in this process."""
    began = time.monotonic()
    report = PartReport(options.to / f"{part}.json", {"part": part, "small": options.small})
    try:
        task = await task_of(options, accelerator)
        key = key_of(order_of(task.first, accelerator), task.state.absolute() / "key")
        report.head("machine", ran_on(key))
        report.head("models", {name: str(path) for name, path in task.models.items()})
        await PARTS[part](task, report)
    except Exception as error:  # noqa: BLE001 (whatever it is, it belongs into the JSON, and the next part goes on)
        report.fail(part, error)
        print(json.dumps({"part": part, "error": repr(error)}), file=sys.stderr)
    report.end(time.monotonic() - began)
    return 0 if is_measured(options.to / f"{part}.json") else 1


async def task_of(options: Options, accelerator: Accelerator) -> Task:
    """The models are made if nobody names any."""
    limit, state = TimeLimit(options.seconds - MARGIN_SECONDS), options.to / "state"
    models = named(options.models)
    if not models:
        models = dict(tiny_models(state) if options.small else await demo_models(options.demo_models))
    return Task(
        models=models,
        accelerator=accelerator,
        small=options.small,
        runs=options.runs,
        state=state,
        demo_models=options.demo_models,
        limit=limit,
    )


if __name__ == "__main__":
    sys.exit(main())
