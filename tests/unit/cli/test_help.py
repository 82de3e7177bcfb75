"""Help is instant, and says of every command what it changes and how it is called."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tidegate.cli import command_tree

HEAVY = ("mlflow", "locust", "matplotlib", "httpx", "kubernetes", "torch", "scipy", "numpy", "uvicorn")
"""What no help and no usage error needs; each costs a person tenths of a second or more."""

READ_ONLY = {"plan", "status", "model list", "engine show"}


def commands() -> dict[str, Any]:
    """Every command by the words that call it."""
    root: Any = command_tree()
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        found |= {f"{name} {verb}": leaf for verb, leaf in inner.items()} if inner else {name: command}
    return found


def paragraphs(command: Any) -> list[str]:
    return [part.strip("\b\n") for part in str(command.help).split("\n\n")]


@pytest.mark.parametrize("name", commands())
def test_help_begins_with_one_line_ends_with_examples_and_explains_every_parameter(name: str) -> None:
    command = commands()[name]
    summary, *_, shown = paragraphs(command)
    assert summary[0].isupper() and summary.endswith(".") and "\n" not in summary
    title, *examples = shown.splitlines()
    assert title == "Examples:" and examples
    assert all(line.startswith(f"  tidegate {name}") for line in examples)
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []
    if name in READ_ONLY:
        assert "Changes nothing." in summary
        assert {"json", "yaml"} <= set(command.formats)


@pytest.mark.parametrize("arguments", [["--help"], ["deliver", "--help"], ["delivr"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom tidegate.cli import main\nmain(sys.argv[1:])\n"
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert result.stderr.splitlines()[-1] == ""
