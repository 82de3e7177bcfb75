"""What a command loads before it has anything to do: each step of a workflow is a process, and pays for it again.

MLflow alone takes four seconds of a processor and brings pandas with it; it is loaded by whoever first asks it. The
others are loaded by the steps that need them: scipy's statistics by gates, openai by what asks an engine.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = (
    "hera",
    "kubernetes",
    "locust",
    "matplotlib",
    "mlflow",
    "openai",
    "pandas",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sqlalchemy",
    "torch",
)
COMMANDS = (
    "tidegate.cli.commands.approve",
    "tidegate.cli.commands.resume",
    "tidegate.cli.commands.serve",
    "tidegate.cli.commands.stage_close",
    "tidegate.cli.commands.stage_open",
    "tidegate.cli.commands.stage_step",
    "tidegate.cli.commands.status",
    "tidegate.cli.delivery",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_later_what_it_may_not_need(command: str) -> None:
    code = f"import sys, {command}\nprint(*(name for name in {LATER} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []
