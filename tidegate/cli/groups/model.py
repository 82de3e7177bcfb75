"""`tidegate model`: options and help."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import (
    STATE,
    As,
    Output,
    State,
    Tracking,
)

if TYPE_CHECKING:
    pass


model = typer.Typer(help="Model versions in the registry.")


@model.command("register")
def model_register(
    name: Annotated[str, typer.Argument(help="The registered model's name.")],
    folder: Annotated[Path, typer.Argument(help="A Hugging Face folder: safetensors, tokenizer, config.")],
    alias: Annotated[str | None, typer.Option(help="champion or challenger.")] = None,
    description: Annotated[str, typer.Option(help="What this version is.")] = "",
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Register a folder as the next version of a model, with a digest of every file.

    \b
    Examples:
      tidegate model register support-llm ./export --alias challenger
    """
    from tidegate.cli.commands.model import register

    return register(
        name, folder, state, tracking_uri, alias=alias, description=description, as_json=output is Output.JSON
    )


@model.command("list")
def model_list(
    name: Annotated[str, typer.Argument(help="The registered model's name.")],
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """List a model's versions, their aliases and digests. Changes nothing.

    \b
    Examples:
      tidegate model list support-llm
    """
    from tidegate.cli.commands.model import versions

    return versions(name, state, tracking_uri, as_json=output is Output.JSON)


@model.command("alias")
def model_alias(
    name: Annotated[str, typer.Argument(help="The registered model's name.")],
    version: Annotated[str, typer.Argument(help="The version's number.")],
    alias: Annotated[str, typer.Argument(help="champion, challenger or previous.")],
    state: State = STATE,
    tracking_uri: Tracking = None,
) -> int:
    """Say what a version is for. Moves the alias when another version has it.

    \b
    Examples:
      tidegate model alias support-llm 2 challenger
    """
    from tidegate.cli.commands.model import set_alias

    return set_alias(name, version, alias, state, tracking_uri)
