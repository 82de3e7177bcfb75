"""`tidegate model`: versions in the registry."""

from __future__ import annotations

from pathlib import Path

from registry.model import Alias, ModelVersion
from tidegate.app.wiring.stores import open_registry
from tidegate.cli.output import print_json, say
from tidegate.core.errors import UsageError


def register(
    name: str,
    folder: Path,
    state: Path,
    tracking_uri: str | None,
    *,
    alias: str | None,
    description: str,
    as_json: bool,
) -> int:
    """Log the folder as the next version."""
    _refuse_unknown_alias(alias)
    registry = open_registry(state, tracking_uri)
    version = registry.register(name, folder, description=description or None, alias=alias)
    if as_json:
        print_json(version.model_dump(mode="json"))
    else:
        say(_line(version))
    return 0


def versions(name: str, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Print every version."""
    found = open_registry(state, tracking_uri).versions(name)
    if as_json:
        print_json([version.model_dump(mode="json") for version in found])
        return 0
    for version in found:
        say(_line(version))
    return 0


def set_alias(name: str, version: str, alias: str, state: Path, tracking_uri: str | None) -> int:
    """Move the alias."""
    _refuse_unknown_alias(alias)
    registry = open_registry(state, tracking_uri)
    registry.set_alias(name, alias, version)
    say(_line(registry.resolve(name, version)))
    return 0


def _refuse_unknown_alias(alias: str | None) -> None:
    if alias is not None and alias not in set(Alias):
        raise UsageError(f"no alias is called `{alias}`", hint=f"known: {', '.join(Alias)}")


def _line(version: ModelVersion) -> str:
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    size = version.size_bytes / 1e6
    return f"{version.uri}{aliases}: {len(version.files)} files, {size:.0f} MB, digest {version.digest[:12]}"
