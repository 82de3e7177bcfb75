"""`tidegate model`: options, help and output."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.output import Output, print_data, say
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from registry.model import ModelVersion


model = typer.Typer(name="model", help="Model versions in the MLflow registry.")


@model.command("register")
@prints(Output.JSON, Output.YAML, Output.NAME)
def model_register(
    name: Annotated[str, typer.Argument(help="Name of the registered model.")],
    source: Annotated[
        str, typer.Argument(help="A Hugging Face folder, runs:/RUN/PATH, or hf://ORGANISATION/NAME@REVISION.")
    ],
    alias: Annotated[str | None, typer.Option(help="Alias to set, such as challenger.")] = None,
    description: Annotated[str, typer.Option(help="Description of the version.")] = "",
) -> int:
    """Register a model's files as its next version, with a digest of every file.

    A folder, and what is fetched from the hub, is copied into MLflow; a run's artifacts stay where they are.

    \b
    Examples:
      tidegate model register support-llm ./export --alias challenger
      tidegate model register support-llm runs:/4f2c.../model
      tidegate model register support-llm hf://acme/support-llm@v3 --alias challenger
    """
    from tidegate.app.models.register import Registration, register

    _require_alias(alias)
    version = register(Registration(name, source, given().state, given().tracking_uri, alias, description or None))
    _tell(version, given().output)
    return 0


@model.command("adopt")
@prints(Output.JSON, Output.YAML, Output.NAME)
def model_adopt(
    name: Annotated[str, typer.Argument(help="Name of the registered model.")],
    version: Annotated[str, typer.Argument(help="Number of the version, or an alias.", show_default="the newest")] = "",
    folder: Annotated[
        str | None, typer.Option(help="The Hugging Face folder among its artifacts; . is their top.")
    ] = None,
) -> int:
    """Write the digests of a version's files as tags, however it was logged. Reads the files once.

    Copies nothing; skips a version that has digests.

    \b
    Examples:
      tidegate model adopt support-llm 7
      tidegate model adopt support-llm 7 --folder artifacts/hf
    """
    from pipelines.adapters.stores import NotedAdoption, open_registry

    registry, noted = open_registry(given().state, given().tracking_uri), NotedAdoption()
    adopted = registry.adopt(name, version or registry.newest(name), folder=folder, progress=noted)
    left_out = noted.seen.layout.left_out if noted.seen else ()
    _tell(adopted, given().output, {"adopted_now": noted.seen is not None, "left_out": left_out})
    return 0


@model.command("list")
@prints(Output.JSON, Output.YAML, Output.NAME)
def model_list(
    name: Annotated[str, typer.Argument(help="Name of the registered model.")],
) -> int:
    """List a model's versions, their aliases and digests. Changes nothing.

    \b
    Examples:
      tidegate model list support-llm
    """
    from pipelines.adapters.stores import open_registry

    found = open_registry(given().state, given().tracking_uri).versions(name)
    if given().output.is_data:
        print_data([version.model_dump(mode="json") for version in found], given().output)
        return 0
    for version in found:
        _tell(version, given().output)
    return 0


@model.command("alias")
@prints(Output.JSON, Output.YAML, Output.NAME)
def model_alias(
    name: Annotated[str, typer.Argument(help="Name of the registered model.")],
    version: Annotated[str, typer.Argument(help="Number of the version.")],
    alias: Annotated[str, typer.Argument(help="Such as challenger, champion or production.")],
) -> int:
    """Set an alias of a version. Moves it when another version has it.

    \b
    Examples:
      tidegate model alias support-llm 2 challenger
    """
    from pipelines.adapters.stores import open_registry

    _require_alias(alias)
    registry = open_registry(given().state, given().tracking_uri)
    registry.set_alias(name, alias, version)
    _tell(next(each for each in registry.versions(name) if alias in each.aliases), given().output)
    return 0


@model.command("download")
def model_download(
    uri: Annotated[str, typer.Argument(help="models:/NAME/VERSION or models:/NAME@ALIAS.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write to; the files are in FOLDER/model.")],
    digest: Annotated[str, typer.Option(help="Refuse a version whose files have another digest.")] = "",
) -> int:
    """Download a version's files to a folder, and verify each against its digest.

    Skips files that are there and correct. Pods of `engine.image` run it before their engine starts.

    \b
    Examples:
      tidegate model download models:/support-llm/7 /var/cache/tidegate
    """
    from pipelines.adapters.stores import open_registry
    from registry.conventions import name_and_reference

    registry = open_registry(given().state, given().tracking_uri)
    version = registry.resolve(*name_and_reference(uri))
    if digest and version.digest != digest:
        raise UsageError(f"{version.uri}: found digest {version.digest[:12]}; expected {digest[:12]}")
    say(f"{registry.download(version, folder)}: {len(version.files)} files, digest {version.digest[:12]}")
    return 0


def _tell(version: ModelVersion, output: Output, more: Mapping[str, object] | None = None) -> None:
    """One version; data has `more`."""
    if output.is_data:
        print_data(version.model_dump(mode="json") | dict(more or {}), output)
    else:
        say(version.uri if output is Output.NAME else _line(version))


def _require_alias(alias: str | None) -> None:
    from registry.conventions import alias_problem

    problem = alias_problem(alias) if alias is not None else None
    if problem:
        raise UsageError(f"alias `{alias}`: {problem}", hint="such as challenger, champion, production")


def _line(version: ModelVersion) -> str:
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    if not version.digest:
        return f"{version.uri}{aliases}: no digests yet; run: tidegate model adopt {version.name} {version.version}"
    size = version.size_bytes / 1e6
    return f"{version.uri}{aliases}: {len(version.files)} files, {size:.0f} MB, digest {version.digest[:12]}"
