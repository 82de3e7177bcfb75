"""A Prometheus behind a door: it answers a query only to the one who says who asks, and repeats what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fakes.services.http import QuietHandler, answering

Headers = dict[str, str]
"""By names in lower case."""


@dataclass
class Door:
    """Where it answers, who is let in, and what was heard."""

    opens: Callable[[Headers], bool]
    """Of the headers."""
    address: str = ""
    moved_to: str = ""
    """Where it sends everybody; itself when empty."""
    heard: list[Headers] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


ANSWER = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "1"]}]}}


@contextmanager
def guarded(opens: Callable[[Headers], bool], *, moved_to: str = "") -> Iterator[Door]:
    """A server on the loopback."""
    door = Door(opens, moved_to=moved_to)

    class Behind(QuietHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            with door.lock:
                door.heard.append(headers)
            if door.moved_to:
                self.answer(status=307, location=f"{door.moved_to}{self.path}")
            elif door.opens(headers):
                self.answer(json.dumps(ANSWER))
            else:
                self.answer(f"who are you? you sent {json.dumps(headers)}", status=401)

    with answering(Behind) as address:
        door.address = f"http://{address}"
        yield door
