"""What the clients of all providers have in common."""

from __future__ import annotations

import logging

from registry.errors import ConnectionBroken, ObjectChanged
from tidegate.core.errors import without_credentials

PAGE_OBJECTS = 1000
"""Listed by one request."""


def said_by(error: BaseException) -> str:
    """The first line of a provider's error, in which no address has a password."""
    lines = str(error).strip().splitlines()
    return without_credentials(lines[0])[:200] if lines else type(error).__name__


def object_changed(place: str) -> ObjectChanged:
    """What the tag of an object tells that is no longer the one that was found."""
    return ObjectChanged(f"{place}: changed while it was read", hint="try again once nobody writes there")


def connection_broken(place: str, error: BaseException) -> ConnectionBroken:
    """A request that may be sent again."""
    return ConnectionBroken(f"{place}: {said_by(error)}", hint="try again")


def quiet(*loggers: str) -> None:
    """Let clients write down no more than warnings: below are tokens, keys that they were given, signed addresses."""
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
