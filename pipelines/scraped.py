"""How often each region's Prometheus scrapes engines, asked while a plan is made; no plan fails for want of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from pipelines.asked_of_prometheus import scraping_of
from pipelines.spec import Delivery
from rollouts.doctor import Scraping
from tidegate.core.errors import TidegateError
from tidegate.core.model import Value

PATIENCE_SECONDS = 5.0
"""Who makes a plan waits for an answer, and not for a region that is away."""


class Asks(Protocol):
    """A region's Prometheus."""

    async def ask(self, query: str) -> tuple[float, ...]:
        """The samples of an instant query now.

        Raises:
            TidegateError: when it does not answer, or refuses.
        """
        ...


class Scraped(Value):
    """What was learnt of one region."""

    region: str
    scraping: Scraping
    every: timedelta | None = None
    """How often its engines are scraped; None when there is none yet, or nobody could be asked."""
    problem: str = ""
    """Why Prometheus could not be asked."""

    @property
    def warning(self) -> str:
        """One line for a person; empty when all is as the spec says, or there is no engine yet."""
        if self.problem:
            return f"{self.region}: how often engines are scraped is not known: {self.problem}"
        differs = self.every is not None and self.scraping.differs(self.every)
        return f"{self.region}: {self.scraping.told(self.every)}" if self.every and differs else ""

    def as_data(self) -> dict[str, object]:
        """For programs, in seconds."""
        return {
            "region": self.region,
            "scrape_interval_seconds": self.scraping.interval.total_seconds(),
            "seen_seconds": self.every.total_seconds() if self.every else None,
            "problem": self.problem or None,
        }


async def scraped(spec: Delivery, places: Mapping[str, Asks]) -> Sequence[Scraped]:
    """Every region at once, in the order of `places`."""
    return await asyncio.gather(*(_of(region, scraping_of(spec, region), asks) for region, asks in places.items()))


async def _of(region: str, scraping: Scraping, asks: Asks) -> Scraped:
    try:
        samples = await asyncio.wait_for(asks.ask(scraping.query), PATIENCE_SECONDS)
    except TimeoutError:
        return Scraped(region=region, scraping=scraping, problem=f"no answer within {PATIENCE_SECONDS:g} s")
    except TidegateError as error:
        return Scraped(region=region, scraping=scraping, problem=str(error))
    return Scraped(region=region, scraping=scraping, every=scraping.seen(samples))
