"""Asks engines of this machine to keep samples of users' requests, takes them, and opens them.

A delivery has one key pair and one token, made when it begins and nowhere but in its process: what an engine has kept
for a delivery that is over cannot be opened by anybody. Engines read what to keep from a file of their region.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from engine_images.samples.key import HEADER, WHERE, SampleKey
from gates.answers.samples import TakenSamples
from pipelines.adapters.samples.sealed import asked_for, opened
from pipelines.spec.sections import SamplesSpec
from rollouts.adapters.http import Http
from rollouts.errors import Unreachable
from rollouts.model import EngineSet
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

FOR_SECONDS = 60.0
"""Engines keep samples for so long after they last heard that somebody wants them."""
TAKE_SECONDS = 5.0


class LocalSamples:
    """A `UserSamples` of the fleet on this machine."""

    def __init__(self, folder: Path, settings: SamplesSpec, clock: Clock) -> None:
        """`folder` holds a file for each region; engines were told where."""
        self._folder, self._settings, self._clock = folder, settings, clock
        self._key = SampleKey()

    async def require(self, region: str, version: str) -> None:
        """Every engine that this fleet starts is told where to look."""

    async def keep(self, region: str, shares: Mapping[str, float]) -> None:
        asked = asked_for(self._key, self._settings, shares, until=self._clock.now().timestamp() + FOR_SECONDS)
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
                reply = await http.post(address, timeout_seconds=TAKE_SECONDS, headers=headers)
        except Unreachable as error:
            raise OutsideError(f"no samples of version {engine.version}: {error.message}", hint=error.hint) from error
        if not reply.ok:
            raise OutsideError(
                f"the engine of version {engine.version} keeps no samples: status {reply.status}",
                hint="start the fleet again with this tidegate: `tidegate fleet down`, then `tidegate fleet up`",
            )
        return TakenSamples(samples=opened(self._key, map(json.loads, [reply.text])))

    async def end(self, region: str) -> None:
        file_of(self._folder, region).unlink(missing_ok=True)


def file_of(folder: Path, region: str) -> Path:
    """Where engines of a region read what to keep."""
    return folder / f"{region}.json"
