"""`tidegate model`: model versions in MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from tidegate.cli.options import opened_registry
from tidegate.cli.settings import Output, given, prints, say
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from registry.model import ModelVersion

model = Typer(name="model", help="Model versions in the MLflow registry.")

Name = Annotated[str, Argument(help="Name of the registered model.")]


@model.command("add")
@prints(Output.JSON, Output.YAML, Output.NAME)
def add(
    name: Name,
    source: Annotated[
        str, Argument(help="A Hugging Face folder, hf://ORGANISATION/NAME@REVISION, or a version's number or alias.")
    ],
    alias: Annotated[str | None, Option(metavar="NAME", help="Alias to set, such as challenger.")] = None,
) -> int:
    """Register a model's files as its next version, or adopt one that others logged; with a digest of every file.

    A folder, and what is fetched from the hub, is copied into MLflow. The files of a version that is there are read
    once and stay where they are; one that has digests stays as it is.

    \b
    Examples:
      tidegate model add support-llm ./export --alias challenger
      tidegate model add support-llm hf://acme/support-llm@v3 --alias challenger
      tidegate model add support-llm 7
    """
    return _show(opened_registry().add(name, source, alias=alias))


@model.command("list")
@prints(Output.JSON, Output.YAML, Output.NAME)
def model_list(name: Name) -> int:
    """List a model's versions, their aliases and digests. Changes nothing.

    \b
    Examples:
      tidegate model list support-llm
    """
    found = opened_registry().versions(name)
    data = [version.model_dump(mode="json") for version in found]
    given().show(data, *map(_line, found), names=[version.uri for version in found])
    return 0


@model.command("alias")
@prints(Output.JSON, Output.YAML, Output.NAME)
def model_alias(
    name: Name,
    version: Annotated[str, Argument(help="Number of the version.")],
    alias: Annotated[str, Argument(help="Such as challenger, champion or production.")],
) -> int:
    """Set an alias of a version. Moves it when another version has it.

    \b
    Examples:
      tidegate model alias support-llm 2 challenger
    """
    from registry.conventions import refuse_alias

    refuse_alias(alias)
    registry = opened_registry()
    registry.set_alias(name, alias, version)
    return _show(next(each for each in registry.versions(name) if alias in each.aliases))


@model.command("download", hidden=True)
def model_download(
    uri: Annotated[str, Argument(help="models:/NAME/VERSION or models:/NAME@ALIAS.")],
    folder: Annotated[Path, Argument(help="Folder to write to; the files are in FOLDER/model.")],
    digest: Annotated[str, Option(help="Refuse a version whose files have another digest.")] = "",
) -> int:
    """Download a version's files to a folder, and verify each against its digest.

    Skips files that are there and correct. Pods of `engine.image` run it before their engine starts.

    \b
    Examples:
      tidegate model download models:/support-llm/7 /var/cache/tidegate
    """
    from registry.conventions import name_and_reference

    registry = opened_registry()
    version = registry.resolve(*name_and_reference(uri))
    if digest and version.digest != digest:
        raise UsageError(f"{version.uri}: found digest {version.digest[:12]}; expected {digest[:12]}")
    say(f"{registry.download(version, folder)}: {len(version.files)} files, digest {version.digest[:12]}")
    return 0


def _show(version: ModelVersion) -> int:
    given().show(version.model_dump(mode="json"), _line(version), names=[version.uri])
    return 0


def _line(version: ModelVersion) -> str:
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    if not version.digest:
        return f"{version.uri}{aliases}: no digests yet; run: tidegate model add {version.name} {version.version}"
    # Lists do not read them.
    files = f"{len(version.files)} files, " if version.files else ""
    return f"{version.uri}{aliases}: {files}{version.size_bytes / 1e6:.0f} MB, digest {version.digest[:12]}"
