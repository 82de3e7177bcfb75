"""What a delivery's signs of life bring back: that somebody asks it to end."""

from __future__ import annotations

import asyncio

import pytest

from registry.errors import DeliveryLost, StopAsked
from tidegate.cli import delivery
from tidegate.cli.delivery import heartbeat


async def test_a_delivery_that_is_asked_to_end_is_cancelled_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def say() -> None:
        raise StopAsked("asked to stop by ann")

    async def carry() -> None:
        async with heartbeat(say):
            await asyncio.Event().wait()

    carrying = asyncio.create_task(carry())
    with pytest.raises(asyncio.CancelledError):
        await carrying
    assert capsys.readouterr().err == "stopping: asked to stop by ann; every region goes back first\n"


async def test_nothing_else_that_is_wrong_with_a_sign_of_life_ends_a_delivery_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BEAT_SECONDS", 0.0)
    said = asyncio.Event()
    beats: list[int] = []

    async def say() -> None:
        beats.append(1)
        if len(beats) == 3:
            said.set()
        raise DeliveryLost("carried on by another process")

    async with heartbeat(say):
        await said.wait()
    assert "no heartbeat: carried on by another process\n" in capsys.readouterr().err
