"""How long the rules of many SLOs take, from specs to a rule file, as JSON: seconds and peak memory.

    .venv/bin/python benchmarks/slo_generate.py --services 1000

Every service has three SLOs with both alerts, in one `prometheus/v1` spec of its own. `command` is the median of five
runs of `tidegate slo generate` over a folder of them, each a process from its start to its end. In this process
reading, deciding the rules and writing them are timed apart; the peak is its own, with all results held.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import TypeVar

from slo.formats.read import read_all
from slo.outputs import rule_file
from slo.rules import rules_for
from slo.windows import windows_for

Result = TypeVar("Result")

SPEC = """\
version: prometheus/v1
service: service-{number}
labels: {{owner: team-{team}}}
slos:
"""
SLO = """\
  - name: {name}
    objective: {objective}
    sli:
      events:
        error_query: sum(rate(requests_total{{job="service-{number}",{bad}}}[{{{{.window}}}}]))
        total_query: sum(rate(requests_total{{job="service-{number}"}}[{{{{.window}}}}]))
    alerting:
      name: Service{number}
      page_alert: {{labels: {{severity: page}}}}
      ticket_alert: {{labels: {{severity: ticket}}}}
"""
RUNS = 5
OURS = Path(sys.executable).with_name("tidegate")
PROMISES = (("availability", 99.9, 'code=~"5.."'), ("fast", 99, 'le="0.5"'), ("complete", 99.5, 'reason="abort"'))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the making of rules.")
    parser.add_argument("--services", type=int, default=1000)
    services: int = parser.parse_args().services
    texts = {f"service-{number}.yaml": spec(number) for number in range(services)}
    command = whole(texts)
    windows = windows_for(timedelta(days=30))
    phases: dict[str, dict[str, float]] = {}
    read = timed(phases, "read", lambda: read_all(texts))
    groups = timed(
        phases, "rules", lambda: [found for file in read.values() for one in file for found in rules_for(one, windows)]
    )
    text = timed(phases, "write", lambda: rule_file(groups))
    result = {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "command": command,
        "services": services,
        "slos": services * len(PROMISES),
        "rules": sum(len(group.rules) for group in groups),
        "megabytes_written": round(len(text.encode()) / 1e6, 1),
        "phases": phases,
        "wall_seconds": round(sum(phase["wall_seconds"] for phase in phases.values()), 2),
        "cpu_seconds": round(sum(phase["cpu_seconds"] for phase in phases.values()), 2),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(result, indent=2))


def whole(texts: dict[str, str], tidegate: Path = OURS) -> dict[str, float]:
    """Seconds of the command as people start it."""
    walls, cpus = [], []
    with tempfile.TemporaryDirectory(prefix="tidegate-slos-") as folder:
        specs, rules = Path(folder, "slos"), Path(folder, "rules")
        specs.mkdir()
        for name, text in texts.items():
            (specs / name).write_text(text)
        command = [tidegate, "slo", "generate", specs, rules]
        for _ in range(RUNS):
            wall = time.perf_counter()
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0, process.returncode
            walls.append(time.perf_counter() - wall)
            cpus.append(usage.ru_utime + usage.ru_stime)
    return {"wall_seconds": round(median(walls), 2), "cpu_seconds": round(median(cpus), 2)}


def spec(number: int) -> str:
    """One service's file."""
    slos = "".join(
        SLO.format(number=number, name=name, objective=objective, bad=bad) for name, objective, bad in PROMISES
    )
    return SPEC.format(number=number, team=number % 20) + slos


def timed(phases: dict[str, dict[str, float]], name: str, work: Callable[[], Result]) -> Result:
    """What `work` gives; how long it took is noted."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    phases[name] = {
        "wall_seconds": round(time.perf_counter() - wall, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }
    return result


if __name__ == "__main__":
    main()
