"""The commands that containers of a workflow run."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.workflow.cases import CASES, template
from fakes.workflow.interpreter import Controller, Ended, Pod

from tidegate.cli import command_tree


@pytest.mark.parametrize("case", CASES)
async def test_the_command_line_of_each_container_is_taken(case: str) -> None:
    ran: list[str] = []

    async def run(pod: Pod) -> Ended:
        program, *words = pod.argv
        command: Any = command_tree()
        context = command.make_context(program, words)
        while hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, words, parent=context)
        ran.append(program)
        return Ended(0, "d1\n")

    workflow = await Controller(run).submit(template(case), version="7")
    assert (workflow.phase, set(ran), len(ran) > 5) == ("Succeeded", {"tidegate"}, True)
