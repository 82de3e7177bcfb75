"""Help is instant, and says of every command what it changes and how it is called."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tidegate.cli import command_tree

HEAVY = ("mlflow", "openai", "locust", "matplotlib", "httpx", "kubernetes", "torch", "scipy", "numpy", "uvicorn")
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
def test_a_command_is_summed_up_in_one_line(name: str) -> None:
    summary = paragraphs(commands()[name])[0]
    assert "\n" not in summary
    assert summary.endswith(".")
    assert summary[0].isupper()


@pytest.mark.parametrize("name", commands())
def test_a_command_ends_with_examples_of_itself(name: str) -> None:
    title, *examples = paragraphs(commands()[name])[-1].splitlines()
    assert title == "Examples:"
    assert examples
    assert all(line.startswith(f"  tidegate {name}") for line in examples)


@pytest.mark.parametrize("name", sorted(READ_ONLY))
def test_a_command_that_changes_nothing_says_so(name: str) -> None:
    assert "Changes nothing." in paragraphs(commands()[name])[0]


@pytest.mark.parametrize("name", commands())
def test_every_parameter_is_explained(name: str) -> None:
    silent = [parameter.name for parameter in commands()[name].params if not getattr(parameter, "help", None)]
    assert silent == []


@pytest.mark.parametrize("name", sorted(READ_ONLY | {"deliver", "rollback", "model add", "engine push"}))
def test_what_reports_can_report_as_json(name: str) -> None:
    assert {"json", "yaml"} <= set(commands()[name].formats)


@pytest.mark.parametrize("arguments", [["--help"], ["deliver", "--help"], ["delivr"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom tidegate.cli import main\nmain(sys.argv[1:])\n"
        f"print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert result.stderr.splitlines()[-1] == ""


def test_starting_tidegate_creates_nothing(tmp_path: Any) -> None:
    subprocess.run([sys.executable, "-m", "tidegate.cli"], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.iterdir()) == []
