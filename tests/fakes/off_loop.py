"""A store that must not be asked by the thread that has the event loop: everything else would wait for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any


class OffLoop:
    """Passes everything on to a ledger or a registry, and fails when the loop's own thread asks."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return _refused_on_the_loop(found, name) if callable(found) else found


def _refused_on_the_loop(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def asked(*args: Any, **named: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return call(*args, **named)
        raise AssertionError(f"`{name}` of the store was called by the thread of the event loop")

    return asked
