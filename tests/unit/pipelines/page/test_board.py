"""Everybody sees one look."""

from __future__ import annotations

import asyncio
import threading

from fakes.delivery.records import delivered, seen, view

from pipelines.views.page.routes import EVERY_SECONDS, Board
from pipelines.views.page.snapshot import PageSnapshot
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeClock


class Ledger:
    """Counts looks; answers when it may."""

    def __init__(self) -> None:
        self.looks, self.silent = 0, False
        self.may_answer = threading.Event()
        self.may_answer.set()

    def look(self) -> PageSnapshot:
        self.may_answer.wait(10)
        self.looks += 1
        if self.silent:
            raise OutsideError("MLflow store http://me:secret@mlflow: no answer")
        found = view(seen(delivered("2"))).look
        assert found is not None
        return found


async def test_many_who_watch_are_one_look() -> None:
    ledger, clock = Ledger(), FakeClock()
    board = Board("support-llm", ledger.look, clock)
    await asyncio.gather(*(board.refresh() for _ in range(50)))
    assert ledger.looks == 1
    assert "support-llm 2 is in production" in board.picture.parts["earlier"]


async def test_a_picture_is_good_for_a_while_and_then_looked_at_again() -> None:
    ledger, clock = Ledger(), FakeClock()
    board = Board("support-llm", ledger.look, clock)
    await board.refresh()
    clock.elapsed += EVERY_SECONDS / 2
    await board.refresh()
    assert ledger.looks == 1
    clock.elapsed += EVERY_SECONDS / 2
    await board.refresh()
    assert ledger.looks == 2


async def test_nobody_who_leaves_starts_a_second_look() -> None:
    ledger, clock = Ledger(), FakeClock()
    board = Board("support-llm", ledger.look, clock)
    ledger.may_answer.clear()
    for _ in range(5):
        impatient = asyncio.create_task(board.refresh())
        await asyncio.sleep(0)
        impatient.cancel()
    last = asyncio.create_task(board.refresh())
    ledger.may_answer.set()
    await last
    assert ledger.looks == 1


async def test_a_ledger_that_is_silent_ends_nothing_and_its_address_is_not_told() -> None:
    ledger, clock = Ledger(), FakeClock()
    board = Board("support-llm", ledger.look, clock)
    await board.refresh()
    ledger.silent = True
    for _ in range(2):
        clock.elapsed += 60
        await board.refresh()
    said = board.picture.parts
    assert "MLflow has not been reached since 2026-01-01 00:01:00 UTC" in said["news"]
    assert "support-llm 2 is in production" in said["earlier"]
    assert "secret" not in "".join(said.values())
    ledger.silent = False
    clock.elapsed += 60
    await board.refresh()
    assert "not been reached" not in board.picture.parts["news"]
