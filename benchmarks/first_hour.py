"""What a newcomer waits for and makes room for, as JSON: this tree, and next to it an older one.

    .venv/bin/python benchmarks/first_hour.py --before COMMIT
    .venv/bin/python benchmarks/first_hour.py --before COMMIT --parts sizes test demo

`sizes` are megabytes of fresh environments, without bytecode. `commands` are those of `command_time.py`, and `slo`
that of `slo_generate.py`; Sloth's own binary took 2.1 s of CPU for the same 1,000 services. `test` and `demo` are
`make test` and twice `make demo`, each in a clone of its own: the second run of the demo is what everybody pays who
has seen it once. They take an hour and more for each tree and want the machine for themselves, so that they run only
when they are named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from figures import machine
from slo_generate import spec, whole
from trees import ROOT, archived

UV = Path(sys.executable).with_name("uv")
SLOTH_CPU_SECONDS = 2.1
"""Of its binary, for 1,000 services with three SLOs each, on a machine like this one; it is not at hand everywhere."""
INSTALLED = ("", "deliver", "local", "all")
QUICK, LONG = ("sizes", "commands", "slo"), ("test", "demo")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the first hour.")
    parser.add_argument("--before", help="a commit")
    parser.add_argument("--parts", nargs="+", choices=[*QUICK, *LONG], default=list(QUICK))
    parser.add_argument("--runs", type=int, default=10, help="of each command")
    options = parser.parse_args()
    ran_on = machine()
    with tempfile.TemporaryDirectory(prefix="tidegate-first-hour-") as name:
        commits = {"now": "HEAD"} | ({"before": options.before} if options.before else {})
        trees = {each: archived(commit, Path(name, each)) for each, commit in commits.items()}
        found: dict[str, Any] = {}
        for part in options.parts:
            if part == "commands":
                found[part] = commands(options.before, options.runs)
            else:
                found[part] = {each: PARTS[part](tree, Path(name, f"{part}-{each}")) for each, tree in trees.items()}
            # A later part that fails must not take along what an hour has measured.
            print(f"{part}: {json.dumps(found[part])}", file=sys.stderr)
    print(json.dumps({"machine": ran_on, "commits": commits, **found}, indent=2))


def sizes(tree: Path, scratch: Path) -> dict[str, float]:
    """Megabytes of what can be installed."""
    wheel = wheel_of(tree, scratch)
    extras = [extra for extra in INSTALLED if not extra or f"\n{extra} = [" in (tree / "pyproject.toml").read_text()]
    places = {extra or "core": environment(tree, wheel, extra, scratch / (extra or "core")) for extra in extras}
    return {name: megabytes(place) for name, place in places.items()}


def slo(tree: Path, scratch: Path) -> dict[str, Any]:
    """Seconds of `slo generate` for 1,000 services."""
    extra = "all" if "\nall = [" in (tree / "pyproject.toml").read_text() else ""
    place = environment(tree, wheel_of(tree, scratch), extra, scratch / "environment")
    texts = {f"service-{number}.yaml": spec(number) for number in range(1000)}
    return {**whole(texts, place / "bin/tidegate"), "sloth_cpu_seconds": SLOTH_CPU_SECONDS}


def commands(before: str | None, runs: int) -> Mapping[str, Any]:
    """Seconds of commands whose answer is at hand, both trees in turn."""
    script = (sys.executable, ROOT / "benchmarks/command_time.py", "--runs", str(runs))
    found: Mapping[str, Any] = json.loads(run(*script, *(("--before", before) if before else ())))
    return found


def test(tree: Path, scratch: Path) -> float:
    """Seconds of `make test`."""
    scratch.mkdir()
    run("make", f"VENV={scratch / 'venv'}", "setup", "test-tools", cwd=tree)
    return timed("make", f"VENV={scratch / 'venv'}", "test", cwd=tree)


def demo(tree: Path, scratch: Path) -> dict[str, float]:
    """Seconds of `make demo` when the engine environment is there, with models to convert and without."""
    scratch.mkdir()
    make = ("make", f"VENV={scratch / 'venv'}")
    run(*make, "setup", cwd=tree)
    found = {"first": timed(*make, "demo", cwd=tree), "second": timed(*make, "demo", cwd=tree)}
    run(*make, "demo-down", cwd=tree)
    return found


def wheel_of(tree: Path, scratch: Path) -> Path:
    """Built once in `scratch`."""
    run(UV, "build", "--quiet", "--wheel", "--out-dir", scratch, tree)
    return next(scratch.glob("*.whl"))


def environment(tree: Path, wheel: Path, extra: str, place: Path) -> Path:
    """A fresh one with the wheel, and what it requires as that tree has locked it."""
    run(UV, "venv", "--quiet", "--python", sys.executable, place)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    python = ("--python", place / "bin/python")
    run(UV, "pip", "install", "--quiet", *python, "--constraints", tree / "requirements.lock", wanted)
    return place


def megabytes(folder: Path) -> float:
    """Of all files below it, each counted once, without bytecode."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc")
    return round(sum(path.stat().st_size for path in files) / 1e6, 1)


def timed(*words: str | Path, cwd: Path) -> float:
    begun = time.monotonic()
    run(*words, cwd=cwd)
    return round(time.monotonic() - begun, 1)


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    """What it printed; what it complained of is shown when it fails."""
    ended = subprocess.run(list(words), cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, (words, ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
    return ended.stdout


PARTS: Mapping[str, Callable[[Path, Path], Any]] = {"sizes": sizes, "slo": slo, "test": test, "demo": demo}


if __name__ == "__main__":
    main()
