"""The figures of a readable house, as JSON: lengths, shares, imports, tests."""

from __future__ import annotations

import ast
import io
import json
import tokenize
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "packages"
]


def main() -> None:
    sources = {path: path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
    tests = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    lines = sum(len(text.splitlines()) for text in sources.values())
    test_lines = sum(len(text.splitlines()) for text in tests)
    trees = [ast.parse(text) for text in sources.values()]
    figures = {
        "modules": len(sources),
        "lines": lines,
        "module_lines": spread(len(text.splitlines()) for path, text in sources.items() if path.name != "__init__.py"),
        "function_lines": spread(length for tree in trees for length in function_lengths(tree)),
        "docstring_percent": round(100 * sum(map(docstring_lines, trees)) / lines, 1),
        "comment_percent": round(100 * sum(map(comment_lines, sources.values())) / lines, 1),
        "test_lines_per_line": round(test_lines / lines, 2),
        "tests": sum(text.count("\ndef test_") + text.count("\nasync def test_") for text in tests),
        "type_ignores": sum(text.count("# type: ignore") for text in sources.values()),
        "imports": import_figures(),
    }
    print(json.dumps(figures, indent=2))


def spread(lengths: Iterable[int]) -> dict[str, float]:
    ordered = sorted(lengths)
    return {"median": median(ordered), "p90": round(quantiles(ordered, n=10)[-1], 1), "max": ordered[-1]}


def function_lengths(tree: ast.Module) -> list[int]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(node.end_lineno or 0) - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, kinds)]


def docstring_lines(tree: ast.Module) -> int:
    """Lines of every text that stands alone: docstrings, and those below an attribute."""
    return sum(
        (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def comment_lines(text: str) -> int:
    return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline))


def import_figures() -> dict[str, Any]:
    """The longest chain of imports, in modules, and the modules that import each other in a circle."""
    graph = grimp.build_graph(*PACKAGES)
    below = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    cyclic = sorted(module for module in below if module in reachable(below, module))
    if cyclic:
        return {"longest_chain": None, "in_cycles": cyclic}

    @cache
    def depth(module: str) -> int:
        return 1 + max((depth(other) for other in below[module]), default=0)

    return {"longest_chain": max(map(depth, below)), "in_cycles": []}


def reachable(below: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = set(below[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting |= below[module]
    return found


if __name__ == "__main__":
    main()
