"""What the clients of all providers have in common."""

from __future__ import annotations

import logging

from tidegate.core.errors import without_credentials

PAGE_OBJECTS = 1000
"""Listed by one request."""


def said_by(error: BaseException) -> str:
    """The first line of a provider's error, in which no address has a password."""
    lines = str(error).strip().splitlines()
    return without_credentials(lines[0])[:200] if lines else type(error).__name__


def quiet(*loggers: str) -> None:
    """Let clients write down no more than warnings: below are tokens, keys that they were given, signed addresses."""
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
