"""The same of engines in clusters: keys and shares are this delivery's, pods are `rollouts.cluster.samples`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine_images.samples.key import HEADER, WHERE, WHERE_IT_ENDS, SampleKey
from gates.answers.samples import TakenSamples
from pipelines.adapters.samples.sealed import asked_for, opened
from pipelines.spec.sections import SamplesSpec
from rollouts.cluster.samples import RegionSamples, SampleEndpoint
from rollouts.model import EngineSet
from tidegate.core.clock import Clock

FOR_SECONDS = 300.0
"""Engines keep samples for so long after somebody last wrote that samples are wanted."""
AGAIN_SECONDS = 150.0
"""Of it left, it is written again: a kubelet needs up to two minutes to bring it into pods."""


@dataclass
class _Asked:
    """What the engines of one region are asked for, from `keep` to `end`."""

    shares: Mapping[str, float]
    until: float = 0.0
    """Unix time in seconds; what stands in the cluster."""
    key: SampleKey = field(default_factory=SampleKey)

    def at(self, path: str) -> SampleEndpoint:
        return SampleEndpoint(path=path, headers={HEADER: self.key.token})


class ClusterSamples:
    """A `UserSamples` of fleets in clusters: a key pair and a token for each time that samples are asked for."""

    def __init__(self, regions: Mapping[str, RegionSamples], settings: SamplesSpec, clock: Clock) -> None:
        self._regions, self._settings, self._clock = regions, settings, clock
        self._asked: dict[str, _Asked] = {}

    async def require(self, region: str, version: str) -> None:
        await self._regions[region].require(version)

    async def keep(self, region: str, shares: Mapping[str, float]) -> None:
        known = self._asked.get(region)
        asked, now = known or _Asked(shares), self._clock.now().timestamp()
        if asked.until - now >= AGAIN_SECONDS:
            return
        until = now + FOR_SECONDS
        text = asked_for(asked.key, self._settings, asked.shares, until=until)
        await self._regions[region].ask(text, first=known is None)
        asked.until = until
        self._asked[region] = asked

    async def take(self, region: str, engine: EngineSet) -> TakenSamples:
        asked = self._asked[region]
        found = await self._regions[region].take(engine.version, asked.at(WHERE))
        return TakenSamples(samples=opened(asked.key, found.answers), problem=found.problem)

    async def end(self, region: str) -> None:
        if asked := self._asked.pop(region, None):
            await self._regions[region].end(asked.shares, asked.at(WHERE_IT_ENDS))
