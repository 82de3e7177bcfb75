"""Section `spec` of `trust.yaml`: what the operator lets specs have beyond what every spec may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from tidegate.core.model import SpecModel

OURS = "TIDEGATE_"
"""Variables that begin so are for specs to name."""


class SpecTrust(SpecModel):
    """What specs may name."""

    variables: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Environment variables that a spec may name, beside those that begin with `TIDEGATE_`."""
    plugins: Mapping[str, tuple[str, ...]] = {}
    """By argument of vLLM, what it may name: `middleware: [acme.Limits]`, `speculative-config.model: [/draft]`."""
    endpoints: tuple[str, ...] = ()
    """HOST or HOST:PORT of judges that may be asked without TLS, beside this machine and services of a cluster."""

    def may_read(self, variable: str) -> bool:
        """Whether a spec may name that variable."""
        return variable.startswith(OURS) or variable in self.variables
