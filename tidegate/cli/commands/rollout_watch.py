"""`tidegate rollout watch`: a Rollout while it changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing

from rich.live import Live

from rollouts.argo.picture import Picture
from rollouts.argo.pictures import pictures
from tidegate.cli.console import PlainConsole
from tidegate.cli.output import say
from tidegate.cli.rollout_durations import seconds
from tidegate.cli.rollout_place import Asked, opened, place_of
from tidegate.cli.rollout_view import change_line, screen
from tidegate.core.clock import SystemClock

Show = Callable[[Picture], None]


def run(asked: Asked, timeout: str | None, stuck_after: str, *, as_json: bool) -> int:
    """Show it until Ctrl-C, or until the time is over."""
    within_seconds = seconds(timeout, "--timeout") if timeout else None
    stuck_after_seconds = seconds(stuck_after, "--stuck-after")

    def follow(show: Show) -> None:
        asyncio.run(_follow(asked, show, within_seconds, stuck_after_seconds))

    console = PlainConsole()
    try:
        if as_json:
            follow(_news(lambda picture: picture.model_dump_json()))
        elif console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI"):
            with Live(console=console, auto_refresh=False) as live:
                follow(lambda picture: live.update(screen(picture, SystemClock().now()), refresh=True))
        else:
            follow(_news(change_line))
    except KeyboardInterrupt:
        pass  # how a person ends it
    return 0


def _news(line: Callable[[Picture], str]) -> Show:
    """Prints a line whenever there is something new in it."""
    last = ""

    def show(picture: Picture) -> None:
        nonlocal last
        new = line(picture)
        if new != last:
            say(new)
        last = new

    return show


async def _follow(asked: Asked, show: Show, within_seconds: float | None, stuck_after_seconds: float) -> None:
    clock, place = SystemClock(), place_of(asked)
    begun = clock.monotonic()
    async with opened(place, clock) as cluster:
        stream = pictures(cluster, clock, place.name, stuck_after_seconds=stuck_after_seconds)
        async with aclosing(stream) as shown:
            async for picture in shown:
                show(picture)
                if within_seconds is not None and clock.monotonic() - begun >= within_seconds:
                    return
