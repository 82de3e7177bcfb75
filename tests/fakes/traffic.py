"""Made-up user requests for made-up deliveries: steady load, answered by whichever version has the weight."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta

from gates.load.records import RequestRecord
from pipelines.story import Story

TTFT_SECONDS = 0.075
ITL_SECONDS = 0.021


def users(
    story: Story, *, slowness: Mapping[str, float], per_second: float = 3.0, seed: int = 7
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
                    finish_reason="stop",
                )
            )
    return records
