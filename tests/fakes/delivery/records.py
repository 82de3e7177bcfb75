"""Made-up deliveries: the events a real one emits, in its words and order, their users."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from fakes.delivery.world import a_version

from gates.evidence.request_record import RequestRecord
from pipelines.events.state import DeliveryState
from registry.model import Event

START = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
REGIONS = ("eu-west-1", "us-east-1")
EXPECTED = {"build": 6, "deploy": 20, "smoke": 4, "offline": 16, "shadow": 25, "canary": 30, "promote": 2, "bake": 10}


class Delivery:
    """Writes events one after the other, each some seconds after the last."""

    def __init__(self, version: str = "3", *, champion: str = "2", start: datetime = START) -> None:
        self.version = version
        self.champion = champion
        self.now = start
        self.events: list[Event] = []

    def say(self, step: str, kind: str, message: str = "", *, after: float = 0.0, **data: object) -> Delivery:
        self.now += timedelta(seconds=after)
        self.events.append(Event(at=self.now, step=step, kind=kind, message=message, data=data))
        return self

    def open(self) -> Delivery:
        planned = ["build"]
        for wave, region in enumerate(REGIONS, 1):
            stages = ("deploy", "smoke", "offline", "shadow") if wave == 1 else ("deploy", "smoke")
            planned += [f"{stage}@{region}" for stage in stages]
            planned += [f"canary@{region}/25", f"canary@{region}/50", f"promote@{region}", f"bake@{wave}"]
        return self.say(
            "delivery",
            "started",
            f"support-llm {self.version} against {self.champion}",
            plan={
                "name": "support-llm",
                "version": a_version(self.version).model_dump(mode="json"),
                "champion": a_version(self.champion).model_dump(mode="json"),
                "steps": [_planned(step) for step in [*planned, "finalize"]],
                "regions": list(REGIONS),
            },
        )

    def pass_through(self, step: str, seconds: float, message: str = "") -> Delivery:
        return self.say(step, "started").say(step, "done", message, after=seconds)

    def traffic(self, step: str, *, weight: int, mirror: int = 0) -> Delivery:
        region = step.partition("@")[2].partition("/")[0]
        return self.say(step, "traffic", region=region, weight=weight, mirror=mirror)

    def verdict(
        self, step: str, gate: str, outcome: str, reason: str, *, after: float = 0.0, **numbers: float
    ) -> Delivery:
        region = step.partition("@")[2].partition("/")[0]
        said = {"gate": gate, "outcome": outcome, "reason": reason, "numbers": numbers, "region": region}
        return self.say(step, "verdict", reason, after=after, **said)

    def close(self, outcome: str, reason: str, exit_code: int) -> Delivery:
        return self.say("delivery", "closed", reason, outcome=outcome, reason=reason, exit_code=exit_code)

    def prepare(self, region: str) -> Delivery:
        """From the build (first region only) to an engine that answers."""
        if region == REGIONS[0]:
            self.pass_through("build", 5, "engine 9f3c41d2 is ready")
        return self.pass_through(f"deploy@{region}", 19, "ready").pass_through(
            f"smoke@{region}", 3, "same tokens twice"
        )

    def offline(self, *, canary: float, stable: float = 0.92) -> Delivery:
        step = f"offline@{REGIONS[0]}"
        self.say(step, "started")
        for done in (8, 16, 24):
            self.say(step, "evidence", "asked both versions", after=5, done=done, total=24)
        good = canary > stable - 0.05
        words = "as good as the champion" if good else "worse than the champion by more than 0.05"
        self.verdict(
            step,
            "quality",
            "pass" if good else "fail",
            words,
            canary_mean_score=canary,
            stable_mean_score=stable,
            prompts=24,
        )
        return self.say(step, "done" if good else "failed", words)

    def shadow(self, region: str) -> Delivery:
        step = f"shadow@{region}"
        self.say(step, "started").traffic(step, weight=0, mirror=100)
        self.verdict(step, "errors", "running", "12 of 40 requests", after=8, canary_requests=12)
        self.verdict(
            step, "errors", "pass", "no error in 44 requests", after=12, canary_requests=44, errors_canary_share=0
        )
        return self.traffic(step, weight=0).say(step, "done", "both gates pass")

    def canary(self, region: str, weight: int, *, ttft: float) -> Delivery:
        """One weight of the canary stage; slower than 1.3 times the stable fails."""
        step = f"canary@{region}/{weight}"
        self.say(step, "started").traffic(step, weight=weight)
        for seen in (11, 24, 38):
            self.verdict(step, "latency", "running", f"{seen} of 50 requests", after=5, canary_requests=seen)
            self.verdict(step, "errors", "running", f"{seen} of 50 requests", canary_requests=seen)
        good = ttft < 1.3 * 0.098
        words = "TTFT p95 within 30% of stable" if good else "TTFT p95 is more than 30% above stable"
        numbers = {"ttft_p95_canary_seconds": ttft, "ttft_p95_stable_seconds": 0.098, "canary_requests": 52.0}
        self.verdict(step, "latency", "pass" if good else "fail", words, after=6, **numbers)
        if not good:
            return self.say(step, "failed", words)
        self.verdict(
            step, "errors", "pass", "no error in 52 requests", canary_failed_requests=0, stable_failed_requests=0
        )
        return self.say(step, "done", "both gates pass")

    def promote(self, region: str, wave: int) -> Delivery:
        step = f"promote@{region}"
        self.say(step, "started", after=0.2).traffic(step, weight=100).say(step, "done", after=0.8)
        return self.pass_through(f"bake@{wave}", 10)

    def undo(self, region: str) -> Delivery:
        step = f"undo@{region}"
        self.say(step, "started", after=0.1).traffic(step, weight=0)
        return self.say(step, "done", f"all traffic on {self.champion}", after=3)


def delivered(version: str = "2", *, champion: str = "1", start: datetime = START) -> list[Event]:
    """A healthy version reaches both regions."""
    delivery = Delivery(version, champion=champion, start=start).open()
    delivery.prepare(REGIONS[0]).offline(canary=0.93).shadow(REGIONS[0])
    for wave, region in enumerate(REGIONS, 1):
        if wave == 2:
            delivery.prepare(region)
        delivery.canary(region, 25, ttft=0.101).canary(region, 50, ttft=0.104).promote(region, wave)
    return delivery.pass_through("finalize", 0.4).close("delivered", "every gate passed", 0).events


def bad_answers(version: str = "3", *, champion: str = "2", start: datetime = START) -> list[Event]:
    """A fast and broken version is stopped before any user meets it."""
    delivery = Delivery(version, champion=champion, start=start).open()
    delivery.prepare(REGIONS[0]).offline(canary=0.21).undo(REGIONS[0])
    return delivery.close("rolled-back", "quality: worse than the champion by more than 0.05", 1).events


def slow(version: str = "4", *, champion: str = "2", start: datetime = START) -> list[Event]:
    """A slow version is rolled back at its first users."""
    delivery = Delivery(version, champion=champion, start=start).open()
    delivery.prepare(REGIONS[0]).offline(canary=0.92).shadow(REGIONS[0])
    delivery.canary(REGIONS[0], 25, ttft=0.262).undo(REGIONS[0])
    return delivery.close("rolled-back", "latency: TTFT p95 is more than 30% above stable", 1).events


def in_canary() -> list[Event]:
    """A quarter of one region's users are on the canary."""
    delivery = Delivery("3", champion="2").open()
    delivery.prepare(REGIONS[0]).offline(canary=0.92).shadow(REGIONS[0])
    step = f"canary@{REGIONS[0]}/25"
    delivery.say(step, "started").traffic(step, weight=25)
    numbers = {"ttft_p95_canary_seconds": 0.104, "ttft_p95_stable_seconds": 0.098}
    return delivery.verdict(step, "latency", "running", "24 of 50 requests", after=7, **numbers).events


def interrupted(version: str = "5", *, champion: str = "2", start: datetime = START) -> list[Event]:
    """Ctrl-C in the second region takes both regions back."""
    delivery = Delivery(version, champion=champion, start=start).open()
    delivery.prepare(REGIONS[0]).offline(canary=0.92).shadow(REGIONS[0])
    delivery.canary(REGIONS[0], 25, ttft=0.1).canary(REGIONS[0], 50, ttft=0.1).promote(REGIONS[0], 1)
    delivery.prepare(REGIONS[1])
    step = f"canary@{REGIONS[1]}/25"
    delivery.say(step, "started").traffic(step, weight=25)
    delivery.verdict(step, "latency", "running", "11 of 50 requests", after=5, canary_requests=11)
    delivery.say(step, "failed", "interrupted").undo(REGIONS[1]).undo(REGIONS[0])
    return delivery.close("interrupted", "stopped by Ctrl-C", 1).events


def _planned(step: str) -> dict[str, object]:
    stage, _, place = step.partition("@")
    region, _, weight = place.partition("/")
    return {
        "stage": stage,
        "region": None if stage == "bake" else region or None,
        "weight": int(weight) if weight else None,
        "wave": int(place) if stage == "bake" else REGIONS.index(region) + 1 if region else 0,
        "expected_seconds": EXPECTED.get(stage, 1),
    }


TTFT_SECONDS = 0.075
ITL_SECONDS = 0.021


def users(
    story: DeliveryState, *, slowness: Mapping[str, float], per_second: float = 3.0, seed: int = 7
) -> list[RequestRecord]:
    """One record per request in every region of the story; `slowness` stretches a version's times."""
    dice = random.Random(seed)
    assert story.started
    assert story.ended
    count = int((story.ended - story.started).total_seconds() * per_second)
    records = []
    for index in range(count):
        at = story.started + timedelta(seconds=index / per_second)
        for region in story.regions:
            weight = ([0] + [change.weight for change in region.history if change.at <= at])[-1]
            canary = dice.uniform(0, 100) < weight
            version = story.version if canary else str(story.champion)
            stretch = slowness.get(version, 1.0) * dice.lognormvariate(0, 0.18)
            tokens = dice.randint(12, 60)
            ttft, itl = TTFT_SECONDS * stretch, ITL_SECONDS * slowness.get(version, 1.0) * dice.lognormvariate(0, 0.08)
            records.append(
                RequestRecord(
                    started=at.timestamp(),
                    region=region.name,
                    role="canary" if canary else "stable",
                    version=version,
                    status=200,
                    ok=True,
                    ttft_seconds=ttft,
                    itl_mean_seconds=itl,
                    duration_seconds=ttft + itl * tokens,
                    output_tokens=tokens,
                )
            )
    return records
