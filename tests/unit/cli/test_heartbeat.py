"""What a delivery's signs of life bring back: that somebody asks it to end."""

from __future__ import annotations

import asyncio

import pytest

from registry.errors import DeliveryLost, StopAsked
from tidegate import delivering
from tidegate.delivering import heartbeat


async def test_a_delivery_that_is_asked_to_end_is_cancelled_once(caplog: pytest.LogCaptureFixture) -> None:
    async def say() -> None:
        raise StopAsked("asked to stop by ann")

    async def carry() -> None:
        async with heartbeat(say):
            await asyncio.Event().wait()

    carrying = asyncio.create_task(carry())
    with pytest.raises(asyncio.CancelledError):
        await carrying
    assert caplog.messages == ["stopping: asked to stop by ann; every region goes back first"]


async def test_nothing_else_that_is_wrong_with_a_sign_of_life_ends_a_delivery_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "BEAT_SECONDS", 0.0)
    said = asyncio.Event()
    beats: list[int] = []

    async def say() -> None:
        beats.append(1)
        if len(beats) == 3:
            said.set()
        raise DeliveryLost("carried on by another process")

    async with heartbeat(say):
        await said.wait()
    assert "no heartbeat: carried on by another process" in caplog.messages
