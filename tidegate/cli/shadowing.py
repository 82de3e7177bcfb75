"""Our packages have plain names; a folder of the caller with the same name must not become ours in silence."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tidegate.core.errors import UsageError

PACKAGES = ("pipelines", "rollouts", "gates", "registry", "engine_images")


def refuse_shadowed_packages() -> None:
    """Compare where each package would come from with where tidegate itself is.

    Raises:
        UsageError: naming the folder that stands in the way.
    """
    # Asked of the import system without importing: theirs must not run either.
    home = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parents[1] != home:
            found = origin.parent if origin else "nowhere"
            raise UsageError(
                f"the package `{name}` comes from {found}, not from tidegate",
                hint="start tidegate by its own script, in an environment of its own (`uv tool install tidegate`)",
            )
