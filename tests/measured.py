"""What a run of tests says of itself at its end: the slowest tests, programs that were started, time to collect.

`benchmarks/ci.py` makes a table of these lines. Nothing here lets a test fail.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

SLOW_SECONDS = 5.0
"""A test that takes longer has the mark `slow`, which says why."""
SHOWN = 50
PROGRAMS = ("mlflow", "prometheus", "promtool", "envoy", "vllm", "docker-registry", "azurite", "tidegate", "locust")

started: Counter[str] = Counter()
"""By this process; children of what it starts are not counted."""
everywhere: Counter[str] = Counter()
collected: list[float] = []
"""Seconds of each process of the run."""


def program(command: Sequence[str | bytes | os.PathLike[str]] | str | bytes) -> str:
    """What is counted: one of `PROGRAMS` where the command names it, else the name of its file."""
    words = [os.fsdecode(command)] if isinstance(command, str | bytes) else [os.fsdecode(word) for word in command]
    names = [Path(word).name for word in words if not word.startswith("--")]
    for known in PROGRAMS:
        if any(name == known or name.startswith(f"{known}.") for name in names):
            return known
    return names[0] if names else "?"


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        started[program(arguments[1])] += 1


def pytest_configure() -> None:
    sys.addaudithook(_count)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    begun = time.process_time()
    yield
    # With pytest-xdist only the workers collect.
    if session.items:
        collected.append(time.process_time() - begun)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands over what it counted."""
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        everywhere.update(started)
    else:
        output |= {"started": dict(started), "collected": collected}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    everywhere.update(output.get("started", {}))
    collected.extend(output.get("collected", ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    seconds: dict[str, dict[str, float]] = {}
    marked = set()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds.setdefault(report.nodeid, {})[report.when] = report.duration
                if "slow" in report.keywords:
                    marked.add(report.nodeid)
    slow = {test: sum(parts.values()) for test, parts in seconds.items() if sum(parts.values()) > SLOW_SECONDS}
    if slow:
        terminalreporter.section(f"tests above {SLOW_SECONDS:.0f} seconds")
        for test in sorted(slow, key=lambda each: -slow[each])[:SHOWN]:
            terminalreporter.write_line(f"{slow[test]:7.1f} s, set-up {seconds[test].get('setup', 0):.1f} s, {test}")
        for test in sorted(set(slow) - marked):
            terminalreporter.write_line(f"not marked `slow`: {test}")
    for name, times in everywhere.most_common():
        terminalreporter.write_line(f"started: {name}: {times}")
    if collected:
        terminalreporter.write_line(f"collected: {sum(collected):.1f} s in {len(collected)} processes")
