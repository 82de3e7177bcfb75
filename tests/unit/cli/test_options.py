"""Options that belong together are declared once, and reach a command as one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from tidegate.cli.options import spread


@dataclass(frozen=True)
class Place:
    name: Annotated[str, typer.Argument(help="What it is called.")]
    depth: Annotated[int, typer.Option("--depth", min=0, help="In metres.")] = 3


def called(*words: str) -> tuple[int, str]:
    app = typer.Typer()

    @app.command()
    @spread
    def sound(*, fast: Annotated[bool, typer.Option("--fast", help="At once.")] = False, place: Place) -> int:
        """Tell the depth."""
        print(place, fast)
        return 0

    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


def test_each_field_is_an_option_or_an_argument_of_its_own() -> None:
    assert called("harbour", "--depth", "7", "--fast") == (0, "Place(name='harbour', depth=7) True\n")


def test_a_field_keeps_its_default_and_its_limits() -> None:
    assert called("harbour") == (0, "Place(name='harbour', depth=3) False\n")
    assert called("harbour", "--depth", "-1")[0] == 2
    assert called("--fast")[0] == 2


def test_help_is_of_the_command_itself() -> None:
    code, text = called("--help")
    assert code == 0
    assert all(words in text for words in ("Tell the depth.", "What it is called.", "In metres.", "At once."))
    assert "place" not in text.lower().split()
