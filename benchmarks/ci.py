"""Where a run of `.ci/run` or of a Makefile's target spends its time, as JSON, read from what it printed.

    .ci/run 2>&1 | tee ci.log; python benchmarks/ci.py ci.log
    python benchmarks/ci.py --table ci.log      # as `.ci/run` prints it at its end

Each part ends with a line `part: NAME: N s` (the Makefile's `timed`), each run of pytest with the lines of
tests/measured.py. Time decides nothing: a part above its budget is named, and that is all.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

BUDGETS = {"in all": 30 * 60, "make test": 12 * 60, "make quick": 2 * 60, "cluster tests": 12 * 60}
"""Seconds on two idle cores."""
SLOWEST = 50

PART = re.compile(r"^part: (?P<name>[^:]+): (?P<seconds>\d+) s$")
TEST = re.compile(r"^ *(?P<seconds>[\d.]+) s, set-up (?P<setup>[\d.]+) s, (?P<test>tests/\S.*)$")
STARTED = re.compile(r"^started: (?P<program>\S+): (?P<times>\d+)$")
COLLECTED = re.compile(r"^collected: (?P<seconds>[\d.]+) s in (?P<processes>\d+) processes$")
ENDED = re.compile(r"^=+ (?P<counts>.*\b(passed|failed|error).*) in (?P<seconds>[\d.]+)s\b.*=+$")


def figures(log: str) -> dict[str, Any]:
    """The parts with their seconds, what pytest counted, its slowest tests, and the programs that tests started."""
    parts: dict[str, int] = {}
    runs: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    started: dict[str, int] = {}
    collecting = 0.0
    for line in log.splitlines():
        if found := PART.match(line):
            parts[found["name"]] = parts.get(found["name"], 0) + int(found["seconds"])
        elif found := TEST.match(line):
            tests.append({"seconds": float(found["seconds"]), "setup": float(found["setup"]), "test": found["test"]})
        elif found := STARTED.match(line):
            started[found["program"]] = started.get(found["program"], 0) + int(found["times"])
        elif found := COLLECTED.match(line):
            collecting += float(found["seconds"])
        elif found := ENDED.match(line):
            runs.append({"counts": found["counts"], "seconds": float(found["seconds"])})
    return {
        "parts": parts,
        "pytest": runs,
        "collecting_seconds": round(collecting, 1),
        "started": dict(sorted(started.items(), key=lambda each: -each[1])),
        "slowest": sorted(tests, key=lambda each: -each["seconds"])[:SLOWEST],
        "above_budget": {name: seconds for name, seconds in parts.items() if seconds > BUDGETS.get(name, seconds)},
    }


def table(found: dict[str, Any]) -> str:
    """For a person: the parts, the slowest tests, and a warning for each part above its budget."""
    lines = ["", "part                             seconds"]
    lines += [f"{name:<32} {seconds:>7}" for name, seconds in found["parts"].items()]
    lines += ["", *(f"pytest: {run['counts']} in {run['seconds']:.0f} s" for run in found["pytest"])]
    lines += [f"importing and collecting tests, all processes: {found['collecting_seconds']:.0f} s"]
    lines += ["started by tests: " + ", ".join(f"{name} {times}" for name, times in found["started"].items())]
    lines += ["", f"the {len(found['slowest'])} slowest tests"]
    lines += [f"{each['seconds']:7.1f} s, set-up {each['setup']:5.1f} s  {each['test']}" for each in found["slowest"]]
    lines += [
        f"warning: {name} took {seconds} s, and {BUDGETS[name]} s is its budget on two idle cores"
        for name, seconds in found["above_budget"].items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Read where a run spent its time.")
    parser.add_argument("log", type=Path, help="what the run printed; - for standard input")
    parser.add_argument("--table", action="store_true", help="for a person")
    options = parser.parse_args()
    text = sys.stdin.read() if str(options.log) == "-" else options.log.read_text(encoding="utf-8", errors="replace")
    found = figures(text)
    print(table(found) if options.table else json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
