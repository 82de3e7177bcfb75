"""The figures of a readable house, as JSON: this tree, an older one of it, and two projects that are read gladly.

    python benchmarks/house.py                      this tree alone
    python benchmarks/house.py --before cd3ad1b     and what it was at that commit
    python benchmarks/house.py --peers              and kopf and lightkube, which pip fetches

All of them are read by the same functions. Chains and importers count every import, also one inside a function. The
calls between "10 % to the canary" and its PATCH are counted by `calls_to_patch.py`, in a run of that tree's own tests.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import grimp
from calls_to_patch import counted
from trees import ROOT, archived, packages_of

PEERS = {"kopf": "kopf==1.45.2", "lightkube": "lightkube==1.0.1"}
GATES = ("latency", "quality", "agreement", "drift", "burn_rate")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="measure the tree of that commit as well")
    parser.add_argument("--peers", action="store_true", help="measure kopf and lightkube as well")
    parser.add_argument("--tree", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--packages", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.packages:
        figures: dict[str, Any] = measured(asked.tree, asked.packages)
    else:
        figures = {"now": elsewhere(ROOT, packages_of(ROOT)) | ours(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        if asked.before:
            old = archived(asked.before, Path(folder, "before"))
            figures[asked.before] = elsewhere(old, packages_of(old)) | ours(old)
        if asked.peers:
            for name, requirement in PEERS.items():
                where = Path(folder, name)
                pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(where), requirement]
                subprocess.run(pip, check=True, stdout=sys.stderr)
                figures[requirement] = elsewhere(where, [name])
    print(json.dumps(figures, indent=2))


def elsewhere(tree: Path, packages: list[str]) -> dict[str, Any]:
    """Measured by a process of its own: one cannot import two trees of the same names."""
    command = [sys.executable, __file__, "--tree", str(tree), "--packages", *packages]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tree)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured(tree: Path, packages: list[str]) -> dict[str, Any]:
    """All that one reading of the sources tells."""
    sources = {path: path.read_text() for package in packages for path in sorted((tree / package).rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    lines = sum(map(count_lines, sources.values()))
    bodies = [count_lines(text) for path, text in sources.items() if path.name != "__init__.py"]
    functions = [length for tree in trees.values() for length in function_lengths(tree)]
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    folders = Counter(path.parent for path in sources if path.name != "__init__.py")
    return {
        "modules": len(sources),
        "lines": lines,
        "module_lines": spread(bodies),
        "modules_up_to_40_lines_percent": percent(sum(each <= 40 for each in bodies), len(bodies)),
        "modules_in_the_fullest_folder": max(folders.values()),
        "functions_a_module": round(len(functions) / len(sources), 1),
        "function_lines": spread(functions),
        "import_lines_percent": percent(sum(import_lines(node) for node in nodes), lines),
        "comprehensions_per_100_lines": percent(sum(isinstance(node, COMPREHENSIONS) for node in nodes), lines),
        "docstring_percent": percent(sum(map(docstring_lines, trees.values())), lines),
        "comment_percent": percent(sum(map(comment_lines, sources.values())), lines),
        "type_ignores": sum(text.count("# type: ignore") for text in sources.values()),
        "classes_that_share_their_name_percent": shared_names(trees),
        "imports": import_figures(tree, packages),
    }


def ours(tree: Path) -> dict[str, Any]:
    """What is asked of this project alone."""
    texts = [path.read_text() for path in (tree / "tests").rglob("*.py")]
    functions = sum(text.count("\ndef test_") + text.count("\nasync def test_") for text in texts)
    sources = [path for package in packages_of(tree) for path in (tree / package).rglob("*.py")]
    return {
        "test_lines": sum(map(count_lines, texts)),
        "test_functions": functions,
        "modules_that_name_a_gate": {gate: sum(names(path, gate) for path in sources) for gate in GATES},
        "modules_that_import_adapters": sum(
            "adapters" not in path.parts and imports_adapters(ast.parse(path.read_text())) for path in sources
        ),
        "names_for_users": len(public_names(tree)),
        "calls_from_shift_to_patch": counted(tree)["fewest"],
    }


def public_names(tree: Path) -> list[str]:
    """Those that `import tidegate` shows, asked of a process of its own."""
    command = [sys.executable, "-c", "import json, tidegate; print(json.dumps(getattr(tidegate, '__all__', [])))"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tree)
    names: list[str] = json.loads(done.stdout)
    return names


def names(path: Path, word: str) -> bool:
    """Whether the code has it as a whole name or text; what a docstring says does not count."""
    tree = ast.parse(path.read_text())
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    variables = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    fields = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword | ast.arg)}
    return word in attributes | variables | texts | fields


def imports_adapters(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and "adapters" in (node.module or "").split(".") for node in ast.walk(tree)
    )


def spread(lengths: Iterable[int]) -> dict[str, float]:
    ordered = sorted(lengths)
    return {"median": median(ordered), "p90": round(quantiles(ordered, n=10)[-1], 1), "max": ordered[-1]}


def percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def count_lines(text: str) -> int:
    return len(text.splitlines())


def function_lengths(tree: ast.Module) -> list[int]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [length_of(node) for node in ast.walk(tree) if isinstance(node, kinds)]


def import_lines(node: ast.AST) -> int:
    return length_of(node) if isinstance(node, ast.Import | ast.ImportFrom) else 0


def length_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def docstring_lines(tree: ast.Module) -> int:
    """Lines of every text that stands alone: docstrings, and those below an attribute."""
    return sum(
        length_of(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def comment_lines(text: str) -> int:
    return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline))


def shared_names(trees: Mapping[Path, ast.Module]) -> float:
    """Public classes at the top of a module whose name another one has, too."""
    names = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return percent(sum(count for count in names.values() if count > 1), names.total())


def import_figures(tree: Path, packages: list[str]) -> dict[str, Any]:
    """The longest chain of imports, in modules; modules that import each other in a circle; those with one importer."""
    sys.path.insert(0, str(tree))
    graph = grimp.build_graph(*packages, cache_dir=None)
    below = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    importers = [len(graph.find_modules_that_directly_import(module)) for module in graph.modules]
    cyclic = sorted(module for module in below if module in reachable(below, module))
    return {
        "longest_chain": None if cyclic else longest_chain(below),
        "modules_in_circles": len(cyclic),
        "modules_with_one_importer_percent": percent(importers.count(1), len(importers)),
    }


def longest_chain(below: Mapping[str, set[str]]) -> int:
    @cache
    def depth(module: str) -> int:
        return 1 + max((depth(other) for other in below[module]), default=0)

    return max(map(depth, below))


def reachable(below: Mapping[str, set[str]], start: str) -> set[str]:
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
