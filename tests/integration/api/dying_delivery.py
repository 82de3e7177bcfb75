"""A delivery by the Python API to a fleet whose platform is a file; run as a script, it dies on trial."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import tidegate
from tidegate.testing import FakeChat, FakeClock, FakeEvidence, FakeTokenizer


class FileFleet(tidegate.BaseFleet):
    """A region that outlives the process which delivers to it."""

    def __init__(self, region: str, folder: Path) -> None:
        super().__init__(region, entry=f"https://{region}.example.com")
        self.path = folder / f"{region}.json"

    async def read(self) -> tidegate.RegionReading:
        if not self.path.exists():
            return tidegate.RegionReading()
        return tidegate.RegionReading.model_validate_json(self.path.read_bytes())

    async def route(self, split: tidegate.RegionSplit) -> None:
        self._write((await self.read()).model_copy(update={"split": split}))

    async def start(self, engine: tidegate.Engine) -> None:
        reading = await self.read()
        started = tidegate.ServingVersion(
            version=engine.version, digest=engine.digest, url=f"http://engine-{engine.version}"
        )
        self._write(reading.model_copy(update={"engines": (*reading.engines, started)}))

    async def stop(self, version: str) -> None:
        reading = await self.read()
        left = tuple(each for each in reading.engines if each.version != version)
        self._write(reading.model_copy(update={"engines": left}))

    def _write(self, reading: tidegate.RegionReading) -> None:
        self.path.write_text(reading.model_dump_json())


def surroundings(spec: tidegate.Delivery, folder: Path, **canary: Any) -> dict[str, Any]:
    """What `tidegate.connect` takes; `canary` is how version 2 serves."""
    evidence = FakeEvidence()
    evidence.serves("stable", "1")
    evidence.serves("canary", "2", **canary)
    return {
        "fleets": {region: FileFleet(region, folder) for region in spec.regions.names},
        "evidence": evidence,
        "chat": FakeChat({f"http://engine-{version}": str.upper for version in "12"}),
        "tokenizer": FakeTokenizer(),
        "clock": FakeClock(),
    }


def die_on_trial(event: tidegate.DeliveryEvent) -> None:
    if event.step.startswith("canary@us-east-1") and event.kind == "verdict":
        os._exit(9)


async def _deliver(path: str) -> None:
    spec = tidegate.load_spec(path)
    async with tidegate.connect(spec, **surroundings(spec, spec.path.parent)) as backends:
        await tidegate.deliver(backends, listeners=[die_on_trial])


if __name__ == "__main__":
    asyncio.run(_deliver(sys.argv[1]))
