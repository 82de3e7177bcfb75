"""Arms that Prometheus scrapes at different moments: a healthy version passes, a slow one and lost copies do not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.clock import LedClock
from fakes.clusters.region import a_fleet
from fakes.delivery.world import CHALLENGER, CHAMPION, World, a_spec
from fakes.metrics.scraped import ScrapedTraffic, Shares

from gates.transcript import read, replay
from pipelines.errors import Stopped
from pipelines.events.payloads import TrafficShift
from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import CanaryStage, ShadowStage, StageEntry
from slo.kubernetes.pod_monitor import scrape_timeout
from tidegate.testing import an_engine

HERE, THERE = "eu-west-1", "us-east-1"


class Scraped:
    """A world whose one region is watched by a Prometheus; no `look` stands in its spec, nor how long stages last."""

    def __init__(self, folder: Path, *, interval: float, phases: tuple[float, float], **of_users: Any) -> None:
        """`phases` of an interval: when stable is scraped, and when the canary."""
        plain = a_spec(canary="  - canary: {}").model_copy(update={"fleet": a_fleet(HERE, THERE)})
        stages = (plain.stages[0], StageEntry(shadow=ShadowStage()), StageEntry(canary=CanaryStage(weights=(10, 50))))
        self.world = World(folder, plain.model_copy(update={"stages": stages}), clock=LedClock())
        self.traffic = ScrapedTraffic(
            start=self.world.now().timestamp(),
            shares=self._shares,
            interval=interval,
            stable_phase=phases[0] * interval,
            canary_phase=phases[1] * interval,
            settles_within=scrape_timeout(self.world.spec.scrape_interval),
            **of_users,
        )

    async def deployed(self) -> Scraped:
        """The champion serves and the challenger is on trial."""
        for version in (CHAMPION, CHALLENGER):
            await self.world.fleets[HERE].deploy(an_engine(version))
        return self

    async def run(self, stage: StageName, *, weight: int | None = None) -> float:
        """Do the stage; the seconds that it took."""
        begin = self.world.clock.elapsed
        context = replace(self.world.context(), proxy=self.traffic)
        await STAGES[stage](context, PlanStep(stage=stage, wave=1, region=HERE, weight=weight))
        return self.world.clock.elapsed - begin

    def said(self, gate: str) -> str:
        """The last verdict of that gate."""
        last = self.last(gate)
        return f"{last['outcome']}: {last['reason']}"

    def last(self, gate: str) -> dict[str, Any]:
        """The same, with its numbers."""
        told = [e.data for e in self.world.recorder.events if e.kind == "verdict" and e.data["gate"] == gate]
        return dict(told[-1])

    def _shares(self) -> list[Shares]:
        moves = [(e.at, TrafficShift.model_validate(e.data)) for e in self.world.recorder.events if e.kind == "traffic"]
        return [(at.timestamp(), move.weight, move.mirror) for at, move in moves]


async def test_a_healthy_version_passes_with_default_settings_and_is_judged_again_to_the_same(tmp_path: Path) -> None:
    scraped = await Scraped(tmp_path, interval=15, phases=(0.1, 0.9)).deployed()
    assert await scraped.run(StageName.SHADOW) <= 330
    assert scraped.said("errors").startswith("pass")
    await scraped.run(StageName.CANARY, weight=10)
    await scraped.run(StageName.CANARY, weight=50)
    for name in ("shadow", "canary"):
        transcript = tmp_path / "evidence" / f"{name}@{HERE}.jsonl"
        with transcript.open() as lines:
            assert replay(read(lines, file=transcript.name))[1] == []


@pytest.mark.long
async def test_copies_that_never_come_are_missed(tmp_path: Path) -> None:
    scraped = await Scraped(tmp_path, interval=5, phases=(0.0, 0.5), lost=0.3).deployed()
    with pytest.raises(Stopped) as caught:
        await scraped.run(StageName.SHADOW)
    assert caught.value.ending is Ending.INCONCLUSIVE
    assert re.search("copies of .* that the copies arrive", caught.value.reason)


async def test_verdicts_tell_of_stable_what_it_did_next_to_the_canary(tmp_path: Path) -> None:
    scraped = await Scraped(tmp_path, interval=5, phases=(0.0, 0.5)).deployed()
    seconds = await scraped.run(StageName.CANARY, weight=10)
    verdict = scraped.last("errors")
    assert 0.7 * seconds * 18 <= verdict["numbers"]["stable_requests"] <= 1.3 * seconds * 18
    assert "no requests of" not in verdict["reason"]
