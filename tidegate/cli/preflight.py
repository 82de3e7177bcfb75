"""What is refused before a command runs: packages of the caller with our names, a state folder of somebody else."""

from __future__ import annotations

import os
import stat
from importlib.util import find_spec
from pathlib import Path

from tidegate.core.errors import Refused, UsageError

PACKAGES = ("pipelines", "rollouts", "gates", "registry", "engine_images", "slo")
"""Those of the wheel whose names others use, too."""


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
                hint="start tidegate by its own script, in an environment of its own (docs/start/install.md)",
            )


OTHERS = 0o077
"""What group and others may do."""


ROOT = 0
"""Whose folders may be used too: a volume of a container is root's, and root may do anything anyway."""


def kept_private(state: Path) -> Path:
    """`state`, closed to others if it is there; whatever this process makes from now on is closed to them too.

    Called while a command's options are read, so that nothing was written before.

    Raises:
        Refused: it is another user's, who could change what is read there.
    """
    os.umask(OTHERS)
    try:
        found = state.stat()
    except OSError:
        # Not there yet, or not readable: who uses it makes it, or says why not.
        return state
    if not stat.S_ISDIR(found.st_mode):
        return state
    require_own(state, found.st_uid, os.geteuid())
    if found.st_uid == os.geteuid() and found.st_mode & OTHERS:
        state.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    return state


def require_own(state: Path, owner: int, user: int) -> None:
    """Be sure that nobody else may change what is below `state`.

    Raises:
        Refused: as `kept_private`.
    """
    if owner not in (user, ROOT):
        raise Refused(
            f"the state folder {state} belongs to user {owner}, who could change what is read there",
            hint="name one of your own: --state",
        )
