"""Engines that end with the test, whatever it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fakes.engines.engine_image import Process1, start_process_1


@pytest.fixture
def start() -> Iterator[Callable[..., Process1]]:
    """Starts process 1; nothing of it is left after the test."""
    started: list[Process1] = []

    def begin(*arguments: object, **options: object) -> Process1:
        started.append(start_process_1(*arguments, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for engine in started:
        engine.process.kill()
        engine.process.wait()
