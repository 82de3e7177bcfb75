"""The commands that containers of a workflow run."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.workflow.cases import CASES, template
from fakes.workflow.interpreter import commands

from tidegate.cli import command_tree


@pytest.mark.parametrize("case", CASES)
def test_the_command_line_of_each_container_is_taken(case: str) -> None:
    for line in commands(template(case)):
        assert line[0] == "tidegate"
        command: Any = command_tree()
        context = command.make_context(line[0], line[1:])
        while hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, words, parent=context)
