"""The start of an engine, which takes minutes and which a rollback does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from rollouts.errors import NotPossible

Started = TypeVar("Started")


class CancellableStart(Generic[Started]):
    """At most one start at a time; the one who cancels it ends the start, and not its caller."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Started] | None = None

    @property
    def under_way(self) -> bool:
        """Whether an engine comes up now."""
        return self._task is not None

    def cancel(self) -> None:
        """End the start, if there is one."""
        if self._task is not None:
            self._task.cancel()

    async def run(self, version: str, start: Coroutine[Any, Any, Started]) -> Started:
        """Start it.

        Raises:
            NotPossible: a rollback came first.
        """
        task = self._task = asyncio.create_task(start)
        try:
            return await task
        except asyncio.CancelledError as error:
            if task.cancelled() and not _being_cancelled():
                raise NotPossible(
                    f"version {version} was rolled back while it started", hint="deliver it again"
                ) from error
            raise
        finally:
            self._task = None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
