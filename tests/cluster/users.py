"""Users of one region who stream chats at a constant rate, as a process of their own.

    python tests/cluster/users.py ENTRY HOST MODEL RATE OUT [PROMPT...]   # ends at SIGTERM, once all streams have ended

OUT gets a line of JSON for each request that is over: when it began, whether it was answered whole, by which version.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.engines.local_fleet import Request, Users

WRITE_SECONDS = 0.2


@dataclass(frozen=True)
class Asked:
    """One request, as its user saw it."""

    started: float
    """Unix time in seconds."""
    version: str | None
    """Of the engine that answered; None when none did."""
    status: int | None
    whole: bool
    error: str | None = None
    """Why the connection failed."""

    @property
    def failed(self) -> bool:
        return self.status != 200 or not self.whole


class Record:
    """Everybody so far; what was read once is not read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._asked: list[Asked] = []
        self._read = 0

    def read(self) -> list[Asked]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                # The last line may be on its way.
                lines = file.read().rpartition(b"\n")[0]
            if lines:
                self._read += len(lines) + 1
                asked = (Asked(**json.loads(line)) for line in lines.splitlines())
                # A gateway programs a route seconds after it was written: the first user is one who is served.
                self._asked += asked if self._asked else dropwhile(lambda one: one.failed, asked)
        return self._asked


def told(asked: list[Asked]) -> str:
    """Who served how many, and how many failed."""
    by_version = Counter(each.version or "none" for each in asked)
    served = ", ".join(f"version {version} {count}" for version, count in sorted(by_version.items()))
    return f"{len(asked)} requests: {served}; {sum(each.failed for each in asked)} failed"


async def main() -> None:
    entry, host, model, rate, out, *prompts = sys.argv[1:]
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    with Path(out).open("w", encoding="utf-8", buffering=1) as file:
        users = Users(entry, model=model, per_second=float(rate), host=host, prompts=prompts or ["Hello!"])
        async with users:
            while not ending.is_set():
                _write(users.requests, file)
                await asyncio.sleep(WRITE_SECONDS)
        _write(users.requests, file)


def _write(requests: list[Request], file: TextIO) -> None:
    since = time.time() - time.monotonic()
    for each in requests:
        record = {"started": each.started + since, "version": each.version, "status": each.status}
        record |= {"whole": each.whole, "error": each.error}
        print(json.dumps(record), file=file)
    requests.clear()


if __name__ == "__main__":
    asyncio.run(main())
