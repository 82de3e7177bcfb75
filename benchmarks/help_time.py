"""How long `tidegate --help` takes, as JSON; seconds of wall time, each run a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

RUNS = 10


def main() -> None:
    command = [str(Path(sys.executable).parent / "tidegate"), "--help"]
    _seconds(command)  # The first one fills the disk's cache.
    seconds = [_seconds(command) for _ in range(RUNS)]
    print(json.dumps({"runs": RUNS, "median_s": median(seconds), "max_s": max(seconds), "all_s": seconds}, indent=2))


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return round(time.perf_counter() - began, 3)


if __name__ == "__main__":
    main()
