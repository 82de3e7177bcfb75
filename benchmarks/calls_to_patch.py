"""How many functions of ours lie between "set the canary's weight" and the HTTP PATCH that does it, as JSON.

Runs the tests of the fleet on clusters with the real client; wherever `shift` sends a PATCH, the stack is counted from
`shift` down to httpx. `--before COMMIT` does the same in that commit's tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from trees import ROOT, archived, packages_of

TESTS = "tests/unit/rollouts/cluster/test_argo_fleet.py"

PLUGIN = """
import json, os, sys
from pathlib import Path
import httpx, pytest

ROOT, PACKAGES = Path(os.environ["CALLS_ROOT"]), set(json.loads(os.environ["CALLS_PACKAGES"]))
found = []
send = httpx.AsyncClient.send

async def counted(self, request, **options):
    if request.method == "PATCH":
        calls, frame = [], sys._getframe(1)
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
                calls.append(f"{path.relative_to(ROOT)}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        starts = [place for place, call in enumerate(calls) if call.endswith(".shift")]
        if starts:
            found.append(list(reversed(calls[: starts[-1] + 1])))
    return await send(self, request, **options)

httpx.AsyncClient.send = counted

def pytest_sessionfinish(session):
    Path(os.environ["CALLS_OUT"]).write_text(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="measure the tree of that commit as well")
    asked = parser.parse_args()
    figures = {"now": counted(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        if asked.before:
            figures[asked.before] = counted(archived(asked.before, Path(folder, "before")))
    print(json.dumps(figures, indent=2))


def counted(tree: Path) -> dict[str, Any]:
    """The shortest way is told whole: it is what a reader has to follow."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "calls_to_patch_plugin.py").write_text(PLUGIN)
        out = Path(folder, "calls.json")
        path = os.pathsep.join([str(tree), str(tree / "tests"), folder])
        told = {
            "CALLS_ROOT": str(tree),
            "CALLS_PACKAGES": json.dumps(packages_of(tree)),
            "CALLS_OUT": str(out),
            "PYTHONPATH": path,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "calls_to_patch_plugin", TESTS]
        subprocess.run(command, cwd=tree, env=os.environ | told, check=True, stdout=sys.stderr)
        ways = sorted(json.loads(out.read_text()), key=len)
    lengths = [len(way) for way in ways]
    return {"patches": len(ways), "fewest": lengths[0], "median": median(lengths), "shortest_way": ways[0]}


if __name__ == "__main__":
    main()
