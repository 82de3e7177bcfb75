"""Waiting for what must come: no test passes or fails by how fast a machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_SECONDS = 600.0
"""A deadline for a broken product only."""
LOOK_SECONDS = 0.2

Seen = TypeVar("Seen")


def until(what: str, look: Callable[[], Seen | None]) -> Seen:
    """The first answer of `look` that is neither None nor False."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (seen := look()) is None or seen is False:
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(LOOK_SECONDS)
    return seen


async def eventually(what: str, look: Callable[[], Awaitable[Seen | None]]) -> Seen:
    """The first answer of `look` that is neither None nor False."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (seen := await look()) is None or seen is False:
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        await asyncio.sleep(LOOK_SECONDS)
    return seen
