"""What `import tidegate` brings, and what it does not load until it is asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate

HEAVY = ("mlflow", "typer", "rich", "numpy", "pydantic", "pytest", "asyncio")


def test_every_public_name_is_there() -> None:
    assert [name for name in tidegate.__all__ if getattr(tidegate, name, None) is None] == []
    assert set(tidegate.__all__) <= set(dir(tidegate))


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse(Path(tidegate.__file__).with_suffix(".pyi").read_text())
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names} - {None}
    names |= {str(target.id) for node in stub.body if isinstance(node, ast.Assign) for target in node.targets}
    assert names == set(tidegate.__all__)


def test_importing_it_loads_next_to_nothing() -> None:
    code = f"import sys, tidegate\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    assert _printed(code) == []


def test_without_its_testing_part_it_does_without_pytest() -> None:
    code = "import sys, tidegate\n[getattr(tidegate, name) for name in tidegate.__all__ if name != 'testing']\n"
    assert _printed(code + "print(*({'pytest', 'typer', 'mlflow'} & set(sys.modules)))") == []


def test_a_module_does_not_take_the_place_of_a_function() -> None:
    assert _printed("import tidegate.connect\nprint(callable(tidegate.connect))") == ["True"]


def test_an_unknown_name_is_none_of_it() -> None:
    with pytest.raises(AttributeError, match="module 'tidegate' has no attribute 'delivr'"):
        tidegate.delivr  # noqa: B018


def _printed(code: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ended.stdout.split()
