"""Whether an engine still generates is known without asking it more often than stated."""

from __future__ import annotations

import asyncio

import pytest

from engine_images.entrypoint.answers import Receive, Scope, Send
from engine_images.entrypoint.gate import DeepHealth, NoAnswer, ask_inside


class World:
    """A clock and an engine."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.silent: str | None = None
        self.health = DeepHealth(self.ask, every_seconds=10, clock=lambda: self.now)

    async def ask(self) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.silent:
            raise NoAnswer(self.silent)


async def test_it_is_asked_once_for_everybody_and_not_again_for_a_while() -> None:
    world = World()
    looks = await asyncio.gather(*(world.health.current() for _ in range(20)))
    assert {look["by"] for look in looks} == {"inference"}
    world.now += 9
    assert (await world.health.current())["age_seconds"] == 9
    assert world.asked == 1
    world.now += 1
    await world.health.current()
    assert world.asked == 2


async def test_answers_that_flow_make_the_question_needless() -> None:
    world = World()
    world.health.progress()
    world.now += 9
    look = await world.health.current()
    assert (look, world.asked) == ({"healthy": True, "by": "traffic", "age_seconds": 9}, 0)
    world.now += 1
    assert (await world.health.current())["by"] == "inference"


async def test_silence_is_told_with_its_reason_until_it_answers_again() -> None:
    world = World()
    world.silent = "no answer within 10 s"
    look = await world.health.current()
    assert (look["healthy"], look["reason"]) == (False, "no answer within 10 s")
    world.silent = None
    assert not (await world.health.current())["healthy"]
    world.now += 10
    assert (await world.health.current())["healthy"]


async def test_one_who_leaves_does_not_stop_the_question_for_the_others() -> None:
    world = World()
    first = asyncio.create_task(world.health.current())
    second = asyncio.create_task(world.health.current())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)["healthy"]


async def test_a_question_that_nobody_waits_for_any_more_is_withdrawn() -> None:
    noticed = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] and scope["state"] == "of the server"
        try:
            await asyncio.Event().wait()
        finally:
            noticed.set()

    with pytest.raises(NoAnswer, match=r"^no answer within 0\.01 s$"):
        await ask_inside(app, {"state": "of the server"}, "a", 1, within_seconds=0.01)
    assert noticed.is_set()
