"""What a plan tells of how often engines are scraped."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import promql_parser as promql
import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import a_spec

from pipelines.plan import scrapes as module
from pipelines.plan.scrapes import scraped, scraping_of
from rollouts.errors import Unreachable

HERE, THERE = "eu-west-1", "us-east-1"
SPEC = a_spec().model_copy(update={"fleet": a_fleet(HERE, THERE)})


class Answers:
    """A Prometheus that says this to everything, or fails in this way."""

    def __init__(self, *samples: float, error: Exception | None = None, silent: bool = False) -> None:
        self._samples, self._error, self._silent = samples, error, silent

    async def ask(self, query: str) -> tuple[float, ...]:
        if self._silent:
            await asyncio.Event().wait()
        if self._error:
            raise self._error
        return self._samples


async def told(here: Answers, there: Answers) -> list[str]:
    return [each.warning for each in await scraped(SPEC, {HERE: here, THERE: there})]


async def test_a_region_that_is_scraped_as_it_should_be_is_not_told_of() -> None:
    assert await told(Answers(5.0), Answers(4.8, 5.3)) == ["", ""]


async def test_a_region_that_is_scraped_at_another_interval_is_told_of() -> None:
    assert await told(Answers(5.0), Answers(5.0, 15.0)) == [
        "",
        "us-east-1: Prometheus scrapes engines every 15s, and `metrics.scrape_interval` is 5s: "
        "a look of 15s has one scrape of each",
    ]


async def test_where_no_engine_is_yet_there_is_nothing_to_tell() -> None:
    assert await told(Answers(), Answers(float("nan"))) == ["", ""]


async def test_a_prometheus_that_cannot_be_asked_is_told_of_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    assert await told(Answers(error=Unreachable("http://p cannot be reached")), Answers(silent=True)) == [
        "eu-west-1: how often engines are scraped is not known: http://p cannot be reached",
        "us-east-1: how often engines are scraped is not known: no answer within 0.01 s",
    ]


async def test_programs_are_told_in_seconds() -> None:
    here, there = await scraped(SPEC, {HERE: Answers(15.0), THERE: Answers(error=Unreachable("away"))})
    expected = {"region": HERE, "scrape_interval_seconds": 5.0, "seen_seconds": 15.0, "problem": None}
    assert here.as_data() == expected
    assert there.as_data() == {**expected, "region": THERE, "seen_seconds": None, "problem": "away"}


def test_the_question_is_promql_of_this_region_alone() -> None:
    scraping = scraping_of(SPEC, HERE)
    promql.parse(scraping.query)
    assert scraping.query.count('{__name__="up",service="support-llm",region="eu-west-1"}') == 3
    assert (scraping.interval, scraping.look) == (timedelta(seconds=5), timedelta(seconds=15))
