"""The interval between samples of engines, as a real Prometheus tells it."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import a_spec
from fakes.services.prometheus import prometheus, written_down

from pipelines.doctor import scraping_of
from rollouts.adapters.prometheus_query import PrometheusQuery

REGIONS = ("eu-west-1", "us-east-1", "ap-south-1")
"""One that is scraped every 15 s, one whose engine came 20 s ago, one without any."""


@pytest.mark.asyncio
async def test_the_spacing_of_samples_is_told_of_old_engines_and_of_new_ones(tmp_path: Path) -> None:
    now = int(time.time())
    scraped = {REGIONS[0]: range(now - 600, now, 15), REGIONS[1]: range(now - 20, now, 5)}
    lines = [
        f'up{{service="support-llm",region="{region}",pod="{pod}"}} 1 {at}'
        for region, times in scraped.items()
        for pod in ("a", "b")
        for at in times
    ]
    written_down(tmp_path, ["# TYPE up gauge", *lines])
    spec = a_spec().model_copy(update={"fleet": a_fleet(*REGIONS)})
    with prometheus(tmp_path) as url:
        found = {}
        for region in REGIONS:
            scraping = scraping_of(spec, region)
            found[region] = scraping.seen(await PrometheusQuery(url).ask(scraping.query))
    assert found == {REGIONS[0]: timedelta(seconds=15), REGIONS[1]: timedelta(seconds=5), REGIONS[2]: None}
