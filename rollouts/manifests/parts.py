"""Who applies what of a region's objects."""

from __future__ import annotations

from enum import StrEnum


class Part(StrEnum):
    """A half of the objects."""

    SETUP = "setup"
    """An administrator, once: accounts, rights, priorities, node pool, network policy."""
    SERVING = "serving"
    """tidegate, with every delivery: all that the rights of the set-up allow."""
