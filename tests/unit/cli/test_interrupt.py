"""The first Ctrl-C takes the delivery back; the ones that follow may not stop that."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tidegate.core.process import cancelled_by_signals

HEARD = "stopping: every region goes back first\n"
PATIENCE = "already stopping; please wait\n"


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
async def test_a_signal_is_one_cancellation(number: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    # Tests that a shell has started in the background ignore some of them.
    before = signal.signal(number, signal.SIG_DFL)

    async def work() -> None:
        async with cancelled_by_signals():
            send(number)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    signal.signal(number, before)
    assert "".join(f"{line}\n" for line in caplog.messages) == HEARD


async def test_a_second_signal_does_not_stop_what_takes_regions_back(caplog: pytest.LogCaptureFixture) -> None:
    taken_back = []

    async def work() -> None:
        async with cancelled_by_signals():
            try:
                send(signal.SIGINT)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                send(signal.SIGINT)
                send(signal.SIGTERM)
                for region in ("eu-west-1", "us-east-1"):
                    await asyncio.sleep(0.01)
                    taken_back.append(region)

    await asyncio.create_task(work())
    assert taken_back == ["eu-west-1", "us-east-1"]
    assert "".join(f"{line}\n" for line in caplog.messages) == HEARD + 2 * PATIENCE


async def test_afterwards_signals_mean_what_they_meant_before() -> None:
    async with cancelled_by_signals():
        pass
    loop = asyncio.get_running_loop()
    assert not loop.remove_signal_handler(signal.SIGINT)
    assert not loop.remove_signal_handler(signal.SIGTERM)
