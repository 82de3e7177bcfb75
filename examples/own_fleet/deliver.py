"""Deliver with a fleet of one's own: it brings start, route and read, and tidegate does the rest.

The platform here is a dictionary. Answers, times and the clock are tidegate.testing's, so that it runs anywhere:
`python deliver.py` delivers version 2, `python deliver.py slow` rolls it back.
"""

import asyncio
import sys
from pathlib import Path

import tidegate
from tidegate.testing import FakeChat, FakeClock, FakeEvidence, FakeTokenizer, write_tiny_model


class DictFleet(tidegate.BaseFleet):
    def __init__(self, region: str) -> None:
        super().__init__(region, entry=f"https://{region}.example.com")
        self.engines: dict[str, tidegate.ServingVersion] = {}
        self.split = tidegate.RegionSplit()

    async def start(self, engine: tidegate.Engine) -> None:
        url = f"http://engine-{engine.version}"
        self.engines[engine.version] = tidegate.ServingVersion(version=engine.version, digest=engine.digest, url=url)

    async def route(self, split: tidegate.RegionSplit) -> None:
        self.split = split

    async def read(self) -> tidegate.RegionReading:
        return tidegate.RegionReading(split=self.split, engines=tuple(self.engines.values()))

    async def stop(self, version: str) -> None:
        del self.engines[version]


async def deliver(spec: tidegate.Delivery, *, ttft: float = 0.1) -> tidegate.Result:
    """Deliver the challenger, whose first tokens take `ttft` seconds; the champion's take 0.1."""
    plan = tidegate.plan(spec)
    old, new = plan.champion.version, plan.version.version
    evidence = FakeEvidence()
    evidence.serves("stable", old)
    evidence.serves("canary", new, ttft=ttft)
    chat = FakeChat({f"http://engine-{version}": str.upper for version in (old, new)})
    fleets = {region: DictFleet(region) for region in spec.regions.names}
    simulated = {"evidence": evidence, "chat": chat, "tokenizer": FakeTokenizer(), "clock": FakeClock()}
    async with tidegate.connect(spec, fleets=fleets, **simulated) as backends:
        return await tidegate.deliver(backends, listeners=[show])


def show(event: tidegate.DeliveryEvent) -> None:
    if event.kind in {"done", "failed"}:
        print(event.step, event.kind, event.message)


if __name__ == "__main__":
    for seed, alias in enumerate(("champion", "challenger")):
        tidegate.register("support-llm", write_tiny_model(Path(".models", alias), seed=seed), alias=alias)
    spec = tidegate.load_spec(Path(__file__).with_name("delivery.yaml"))
    result = asyncio.run(deliver(spec, ttft=0.3 if "slow" in sys.argv else 0.1))
    print(result.ending, result.reason, sep=": ")
    sys.exit(result.exit_code)
