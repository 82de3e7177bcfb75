"""Proves that users and copies arrive where the route sends them, by what engines count while it looks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rollouts.cluster.ports import Served
from rollouts.cluster.proof import Counts, Proof, copies_of, gained, share_of
from rollouts.errors import FleetError
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

LOOK_SECONDS = 5.0
LONGEST_SECONDS = 90.0
"""Three scrapes of 30 s: what is not seen by then is left to the gates, which never pass without evidence."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answered:
    """What both versions had answered at one moment."""

    stable: str
    canary: str
    by_stable: Counts
    by_canary: Counts


class Arrivals:
    """Compares counts of one region before and after."""

    def __init__(self, region: str, served: Served | None, clock: Clock) -> None:
        """`served` is None where nobody counts; then nothing is proven, and nothing refused."""
        self._region = region
        self._served = served
        self._clock = clock

    async def look(self, versions: tuple[str, str] | None) -> Answered | None:
        """What stable and canary have answered until now; None when nobody knows."""
        if self._served is None or versions is None:
            return None
        stable, canary = versions
        try:
            by_stable, by_canary = await self._served.served(stable), await self._served.served(canary)
        except OutsideError as error:
            log.warning("%s: nobody counts what arrives: %s", self._region, error)
            return None
        return Answered(stable, canary, by_stable, by_canary)

    async def prove_share(self, weight: int, before: Answered | None) -> None:
        """Return once that percent of users is seen to reach the canary, or too few users come to see it.

        Raises:
            FleetError: another share reaches it.
        """

        def proof(stable: float, canary: float) -> Proof:
            return share_of(weight, canary, stable)

        stable, canary, proven = await self._watch(before, proof)
        if proven is Proof.CONTRADICTED:
            seen = 100 * canary / (stable + canary)
            raise FleetError(
                f"{self._region}: the route gives the canary {weight} % of users, and {seen:.0f} % of "
                f"{stable + canary:.0f} requests reached it",
                hint="another route for the same host, or a gateway that does not heed weights: see `tidegate doctor`",
            )

    async def prove_copies(self, percent: int, before: Answered | None) -> None:
        """Return once a copy arrived at the canary, or too few requests come to expect one.

        Raises:
            FleetError: requests come, and no copy of them.
        """

        def proof(stable: float, canary: float) -> Proof:
            return copies_of(percent, canary, stable)

        stable, _, proven = await self._watch(before if percent else None, proof)
        if proven is Proof.CONTRADICTED:
            raise FleetError(
                f"{self._region}: the route mirrors {percent} % of requests, and of {stable:.0f} none reached the "
                "canary",
                hint="the gateway does not know this filter: see `tidegate doctor`",
            )

    async def _watch(
        self, before: Answered | None, proof: Callable[[float, float], Proof]
    ) -> tuple[float, float, Proof]:
        """What both gained, and what that says; a contradiction counts once it stays.

        What was on its way when the route changed is counted where it went.
        """
        seen = (0.0, 0.0, Proof.OPEN)
        deadline = self._clock.monotonic() + LONGEST_SECONDS
        while before and seen[2] is not Proof.HOLDS and self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_SECONDS)
            now = await self.look((before.stable, before.canary))
            if now is None:
                return 0.0, 0.0, Proof.OPEN
            stable, canary = gained(before.by_stable, now.by_stable), gained(before.by_canary, now.by_canary)
            seen = stable, canary, proof(stable, canary)
        return seen
