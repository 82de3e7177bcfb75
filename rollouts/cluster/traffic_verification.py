"""Verifies that users and mirrored requests arrive where the route sends them, by what engines count.

A route is only a request. Fields that the API server dropped, a second route for the same host, a gateway that does not
know a filter: each looks right when it is read back, and users go elsewhere (argo-rollouts#4569).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

from rollouts.errors import FleetError
from rollouts.kube.retry import time_left
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

Counts = Mapping[str, float]
"""Requests answered by each engine of a version since it started, copies included, by the engine's name."""

Count = Callable[[str], Awaitable[Counts]]
"""Counts what the engines of a version answered; raises `OutsideError` when the one who counts is not there."""

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


async def requests_arrive(
    region: str,
    served: Count,
    clock: Clock,
    *,
    percent: int,
    arms: tuple[str, str],
    sends: Sends,
    copies: bool,
) -> bool:
    """Return once that percent of users, or of `copies`, is seen to reach the canary, or too few come to see it.

    `arms` are the versions of stable and canary. What was on its way when the route changed is counted where it went,
    and a contradiction counts once it stays. False when the route does not send them any more: what arrives then says
    nothing of the gateway.

    Raises:
        FleetError: another share reaches it, or no copy does.
    """

    async def counts() -> list[Counts] | None:
        try:
            return [await served(version) for version in arms]
        except OutsideError as error:
            log.warning("%s: nobody counts what arrives: %s", region, error)
            return None

    before, on_stable, on_canary, said = await counts(), 0.0, 0.0, Verification.UNDECIDED
    deadline = clock.monotonic() + min(LONGEST_SECONDS, time_left())
    while before and said is not Verification.CONFIRMED and clock.monotonic() < deadline:
        await clock.sleep(POLL_SECONDS)
        if (now := await counts()) is None:
            return True
        on_stable, on_canary = map(counted_between, before, now)
        said = (verify_mirror if copies else verify_share)(percent, on_stable, on_canary)
        if said is not Verification.CONFIRMED and not await sends():
            return False
    if said is not Verification.CONTRADICTED:
        return True
    if copies:
        told = f"the route mirrors {percent} % of requests, and of {on_stable:.0f} none reached the canary"
        raise FleetError(f"{region}: {told}", hint="the gateway does not know this filter: see `tidegate doctor`")
    came = on_stable + on_canary
    raise FleetError(
        f"{region}: the route gives the canary {percent} % of users, and {100 * on_canary / came:.0f} % of {came:.0f} "
        "requests reached it",
        hint="another route for the same host, or a gateway that does not heed weights: see `tidegate doctor`",
    )
