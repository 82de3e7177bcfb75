"""A delivery's numbers in the fleet's own Prometheus: while it runs, and nothing after it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pipelines.adapters.this_machine import prometheus_target
from rollouts.adapters.http import Unreachable


@dataclass
class Watched:
    """A fleet's host and the server of the numbers, in one: what is asked of them, in its order."""

    away: bool = False
    address: str = "http://127.0.0.1:9464"
    asked: list[str] = field(default_factory=list)

    async def scrape_also(self, name: str, address: str) -> None:
        self._hears(f"scrape {name} at {address}")

    async def forget(self, name: str) -> None:
        self._hears(f"forget {name}")

    def _hears(self, asked: str) -> None:
        if self.away:
            raise Unreachable("the fleet's host does not answer")
        self.asked.append(asked)


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.adapters.this_machine.LAST_SECONDS", 0.0)


async def run(watched: Watched) -> None:
    async with prometheus_target(watched, "support-llm", watched.address):  # type: ignore[arg-type]  # the part that is asked
        watched.asked.append("delivered")


async def test_it_is_scraped_while_it_runs() -> None:
    watched = Watched()
    await run(watched)
    assert watched.asked == [
        "scrape support-llm at http://127.0.0.1:9464", "delivered", "forget support-llm",
    ]  # fmt: skip


async def test_a_delivery_goes_on_when_nobody_can_watch_it(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(away=True)
    await run(watched)
    assert watched.asked == ["delivered"]
    assert caplog.text.count("was not told where this delivery's numbers are") == 2
