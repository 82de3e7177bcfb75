"""The console that commands draw on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tidegate.cli.global_options import given
from tidegate.core.text import printable


class PlainConsole(Console):
    """Shows words of others as they are: brackets are no markup, colons no emoji, and nothing steers the terminal."""

    def __init__(
        self, *, file: IO[str] | None = None, width: int | None = None, soft_wrap: bool = False, stderr: bool = False
    ) -> None:
        super().__init__(
            file=file,
            width=width,
            soft_wrap=soft_wrap,
            stderr=stderr,
            # What goes to stderr by a console is progress; results go to stdout.
            quiet=stderr and given().quiet,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
