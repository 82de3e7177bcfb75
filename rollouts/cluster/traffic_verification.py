"""Verifies that users and mirrored requests arrive where the route sends them, by what engines count.

A route is only a request. Fields that the API server dropped, a second route for the same host, a gateway that does not
know a filter: each looks right when it is read back, and users go elsewhere (argo-rollouts#4569).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Protocol

from rollouts.errors import FleetError
from rollouts.kube.retry import time_left
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError


class RequestCounter(Protocol):
    """Counts the requests that the engines of a region answered."""

    async def served(self, version: str) -> Mapping[str, float]:
        """Requests answered by each engine of a version since it started, copies included, by the engine's name.

        Raises:
            OutsideError: when the one who counts is not there.
        """
        ...


ENOUGH_REQUESTS = 50
"""Fewer say nothing of a share."""

CERTAIN = 1e-6
"""A share that a right route would show more rarely than this is held against the route."""

SLACK = 0.5
"""Of the weight: arms are not scraped at the same moment, and connections are not all equally busy."""

LARGEST_SLACK = 0.15

ENOUGH_COPIES = 20
"""So many copies that were expected, and not one that came: the gateway does not copy."""

Sends = Callable[[], Awaitable[bool]]
"""Whether the route still sends requests as it was set, and to engines that are ready."""

Counts = Mapping[str, float]
"""Requests answered by each engine of a version since it started."""


class Verification(Enum):
    """What arrivals say of a route."""

    CONFIRMED = "confirmed"
    UNDECIDED = "undecided"
    """Too few requests to tell."""
    CONTRADICTED = "contradicted"


def counted_between(before: Counts, after: Counts) -> float:
    """What came between two looks; an engine that is new, or counts from 0 again, has all of its count from after."""
    return sum(
        count - before[engine] if count >= before.get(engine, math.inf) else count for engine, count in after.items()
    )


def verify_share(weight: int, stable: float, canary: float) -> Verification:
    """Whether the canary got that percent of requests."""
    total = round(canary + stable)
    if total < ENOUGH_REQUESTS:
        return Verification.UNDECIDED
    wanted, snapshot = weight / 100, canary / (canary + stable)
    if abs(snapshot - wanted) > min(wanted * SLACK, LARGEST_SLACK) and _odds(total, wanted, snapshot) < CERTAIN:
        return Verification.CONTRADICTED
    # Of a small weight nobody may have come yet; nobody is no proof that somebody would.
    return Verification.CONFIRMED if canary >= 1 else Verification.UNDECIDED


def verify_mirror(percent: int, stable: float, copies: float) -> Verification:
    """Whether copies of what the stable got arrived at the canary."""
    if copies >= 1:
        return Verification.CONFIRMED
    return Verification.CONTRADICTED if stable * percent / 100 >= ENOUGH_COPIES else Verification.UNDECIDED


def _odds(total: int, wanted: float, snapshot: float) -> float:
    """The most that a share so far off, on either side, has of probability: Chernoff's bound, exact enough here."""
    parts = ((snapshot, wanted), (1 - snapshot, 1 - wanted))
    return 2 * math.exp(-total * sum(mine * math.log(mine / theirs) for mine, theirs in parts if mine > 0))


POLL_SECONDS = 5.0
LONGEST_SECONDS = 90.0
"""Three scrapes of 30 s: what is not seen by then is left to the gates, which never pass without evidence."""

log = logging.getLogger(__name__)


class TrafficVerifier:
    """Compares request counts of one region, from when its route was changed."""

    def __init__(self, region: str, served: RequestCounter | None, clock: Clock) -> None:
        """`served` is None where nobody counts; then nothing is proven, and nothing refused."""
        self._region, self._served, self._clock = region, served, clock

    async def check(self, percent: int, stable: str, canary: str, sends: Sends, *, copies: bool) -> bool:
        """Return once that percent of users, or of `copies`, is seen to reach the canary, or too few come to see it.

        What was on its way when the route changed is counted where it went, and a contradiction counts once it stays.
        False when the route does not send them any more: what arrives then says nothing of the gateway.

        Raises:
            FleetError: another share reaches it, or no copy does.
        """
        before = await self._counts(stable, canary)
        on_stable, on_canary, said = 0.0, 0.0, Verification.UNDECIDED
        deadline = self._clock.monotonic() + min(LONGEST_SECONDS, time_left())
        while before and said is not Verification.CONFIRMED and self._clock.monotonic() < deadline:
            await self._clock.sleep(POLL_SECONDS)
            if (now := await self._counts(stable, canary)) is None:
                return True
            on_stable, on_canary = (counted_between(*each) for each in zip(before, now, strict=True))
            said = (verify_mirror if copies else verify_share)(percent, on_stable, on_canary)
            if said is not Verification.CONFIRMED and not await sends():
                return False
        if said is Verification.CONTRADICTED and copies:
            raise FleetError(
                f"{self._region}: the route mirrors {percent} % of requests, and of {on_stable:.0f} none reached the "
                "canary",
                hint="the gateway does not know this filter: see `tidegate doctor`",
            )
        if said is Verification.CONTRADICTED:
            came = on_stable + on_canary
            raise FleetError(
                f"{self._region}: the route gives the canary {percent} % of users, and "
                f"{100 * on_canary / came:.0f} % of {came:.0f} requests reached it",
                hint="another route for the same host, or a gateway that does not heed weights: see `tidegate doctor`",
            )
        return True

    async def _counts(self, stable: str, canary: str) -> tuple[Counts, Counts] | None:
        """What both have answered until now; None when unknown."""
        if self._served is None:
            return None
        try:
            return await self._served.served(stable), await self._served.served(canary)
        except OutsideError as error:
            log.warning("%s: nobody counts what arrives: %s", self._region, error)
            return None
