"""Print the files of unit tests that a change may break: `make quick` runs them.

    python tests/quick.py [--since COMMIT]     # without it: what is not committed, or else the last commit

These are all unit tests of the rooms in which a module changed, and those elsewhere that import such a module, or a
fake that changed, by name. pytest-testmon would choose by lines, but has to run every test under coverage first, which
takes a fresh clone longer than all unit tests do, and again after each move of modules. `make test` runs everything.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "tests/unit"
PACKAGES = ("tidegate", "pipelines", "rollouts", "gates", "registry", "engine_images", "slo")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the unit tests that a change may break.")
    parser.add_argument("--since", help="a commit")
    chosen = tests_of(changed(parser.parse_args().since))
    alone = {path for path in chosen if not chosen & set(path.parents)}
    print("\n".join(sorted(path.relative_to(ROOT).as_posix() for path in alone)))


def changed(since: str | None) -> list[Path]:
    """Paths below the root, deleted ones too."""
    here = _git("diff", "--name-only", since or "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in here or _git("diff", "--name-only", "HEAD~1")]


def tests_of(paths: Iterable[Path]) -> set[Path]:
    """Files of tests, and folders of them; all of `tests/unit` where what changed is of everybody."""
    chosen: set[Path] = {UNIT / "test_house.py"}
    modules: set[str] = set()
    for path in paths:
        if path.parts[0] in PACKAGES:
            chosen |= {room for room in _rooms(path) if room.exists()}
            modules.add(_module(path))
        elif path.parts[:2] == ("tests", "fakes"):
            modules.add(_module(path.relative_to("tests")))
        elif path.parts[:2] == ("tests", "unit"):
            # A conftest.py is of its folder.
            test = ROOT / (path if path.name.startswith("test_") else path.parent)
            chosen |= {test} if test.exists() else set()
        elif path.parent == Path("tests") or path.name in ("pyproject.toml", "requirements.lock"):
            return {UNIT}
        elif path.parts[0] in ("docs", "examples", "benchmarks") or path.suffix == ".md":
            chosen |= set(UNIT.glob("test_*.py"))
    return chosen | _importing(modules)


def _rooms(path: Path) -> list[Path]:
    """Where the tests of that module lie: those of `tidegate` are in a folder for each of its parts."""
    if path.parts[0] != "tidegate":
        return [UNIT / path.parts[0]]
    return [UNIT / path.parts[1] if path.parts[1] in ("core", "cli") else UNIT / "cli"]


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _importing(changed: set[str]) -> set[Path]:
    """Tests that import one of these by name, or a fake that stands on one of the fakes among them."""
    fakes = {_module(path.relative_to(ROOT / "tests")): _imports(path) for path in (ROOT / "tests/fakes").rglob("*.py")}
    shaken = changed & set(fakes)
    while more := {fake for fake, imports in fakes.items() if fake not in shaken and imports & shaken}:
        shaken |= more
    return {path for path in UNIT.rglob("test_*.py") if _imports(path) & (changed | shaken)}


@cache
def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _git(*arguments: str) -> list[str]:
    run = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True)
    return run.stdout.split("\n")[:-1]


if __name__ == "__main__":
    main()
