"""Asks engines to keep samples of users' requests, takes them, and opens them: on this machine, and in clusters.

A delivery has a key pair and a token of its own, nowhere but in its process: what an engine has kept for a delivery
that is over cannot be opened by anybody.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_images.samples.key import HEADER, WHERE, WHERE_IT_ENDS, SampleKey
from gates.answers.samples import TakenSamples, UserSample
from pipelines.spec.sections import SamplesSpec
from rollouts.adapters.http import Http
from rollouts.cluster.samples import RegionSamples
from rollouts.errors import Unreachable
from rollouts.model import EngineSet
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

FOR_SECONDS = 300.0
"""Engines in clusters keep samples for so long after somebody last wrote that samples are wanted."""
AGAIN_SECONDS = 150.0
"""Of it left, it is written again: a kubelet needs up to two minutes to bring it into pods."""
FOR_SECONDS_HERE = 60.0
"""The same of engines on this machine."""
TAKE_SECONDS = 5.0


@dataclass
class _Asked:
    """What the engines of one region are asked for, from `keep` to `end`."""

    shares: Mapping[str, float]
    until: float = 0.0
    """Unix time in seconds; what stands in the cluster."""
    key: SampleKey = field(default_factory=SampleKey)

    @property
    def headers(self) -> Mapping[str, str]:
        return {HEADER: self.key.token}


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
        answers, problem, complete = await self._regions[region].take(engine.version, WHERE, asked.headers)
        return TakenSamples(samples=opened(asked.key, answers), problem=problem, complete=complete)

    async def end(self, region: str) -> None:
        if asked := self._asked.pop(region, None):
            await self._regions[region].end(asked.shares, WHERE_IT_ENDS, asked.headers)


class LocalSamples:
    """A `UserSamples` of the fleet on this machine, whose engines read what to keep from a file of their region."""

    def __init__(self, folder: Path, settings: SamplesSpec, clock: Clock) -> None:
        """`folder` holds a file for each region; engines were told where."""
        self._folder, self._settings, self._clock = folder, settings, clock
        self._key = SampleKey()

    async def require(self, region: str, version: str) -> None:
        """Every engine that this fleet starts is told where to look."""

    async def keep(self, region: str, shares: Mapping[str, float]) -> None:
        asked = asked_for(self._key, self._settings, shares, until=self._clock.now().timestamp() + FOR_SECONDS_HERE)
        # In one step: an engine must not read half of it.
        written = self._folder / f".{region}.{os.getpid()}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            written.write_text(asked, encoding="utf-8")
            written.replace(file_of(self._folder, region))
        except OSError as error:
            hint = "make room there, or use another state folder"
            raise OutsideError(f"cannot write {written}: {error.strerror}", hint=hint) from error

    async def take(self, region: str, engine: EngineSet) -> TakenSamples:
        del region  # An engine's address says it all.
        try:
            async with Http() as http:
                address, headers = f"{engine.url}{WHERE}", {HEADER: self._key.token}
                reply = await http.post(address, timeout=TAKE_SECONDS, headers=headers)
        except Unreachable as error:
            raise OutsideError(f"no samples of version {engine.version}: {error.message}", hint=error.hint) from error
        if not reply.is_success:
            raise OutsideError(
                f"the engine of version {engine.version} keeps no samples: status {reply.status_code}",
                hint="start the fleet again with this tidegate: `tidegate fleet down`, then `tidegate fleet up`",
            )
        return TakenSamples(samples=opened(self._key, map(json.loads, [reply.text])))

    async def end(self, region: str) -> None:
        file_of(self._folder, region).unlink(missing_ok=True)


def file_of(folder: Path, region: str) -> Path:
    """Where engines of a region read what to keep."""
    return folder / f"{region}.json"


def asked_for(key: SampleKey, settings: SamplesSpec, shares: Mapping[str, float], *, until: float) -> str:
    """The text that engines read, which holds nothing secret; `until` is a Unix time in seconds."""
    return key.request(
        shares,
        until=until,
        redact=settings.redact,
        words=settings.words,
        max_entries=settings.max_entries,
        max_bytes=settings.max_megabytes << 20,
        keep_seconds=settings.keep.total_seconds(),
    )


def opened(key: SampleKey, answers: Iterable[Any]) -> tuple[UserSample, ...]:
    """The samples of engines' answers, which may be anything.

    Raises:
        OutsideError: one is sealed for another key, or of another form.
    """
    try:
        return tuple(
            UserSample.model_validate_json(key.open(base64.b64decode(each, validate=True)))
            for answer in answers
            for each in answer["samples"]
        )
    # `from None`: the error as it came holds what a user wrote.
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        hint = "let engines and deliveries be of one version of tidegate"
        raise OutsideError("an engine's answer of samples is of another form", hint=hint) from None
