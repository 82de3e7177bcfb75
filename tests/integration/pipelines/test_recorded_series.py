"""The rules of a delivery in a real Prometheus, over real traffic through a real Envoy: all they record has values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from fakes.delivery.world import SPEC
from fakes.engines.local_fleet import REGION, Users, stand_in

from pipelines.plan.gates import rules_of
from pipelines.spec.delivery import Delivery
from rollouts.adapters.host_client import FleetHost
from rollouts.adapters.http import Http
from tidegate.core.spec import parse_spec

SLOS = """
slos:
  - {name: availability, objective: 99.9, errors: {}}
  - {name: served, objective: 99, errors: {counted_by: engine}}
  - {name: ttft, objective: 99, ttft: {below: 250ms}}
  - {name: itl, objective: 99, itl: {below: 50ms}}
  - {name: e2e, objective: 99, e2e: {below: 2.5s}}
  - {name: queue, objective: 99, queue_time: {below: 1s}}
  - {name: speed, objective: 95, tokens_per_second: {at_least: 10}}
  - {name: cache, objective: 99, kv_cache: {below: 90%}}
cost: {per_engine_hour: 2.50}
"""
NEEDS_MORE = {
    "tidegate:spec_decode_acceptance:rate5m": "speculation",
    "tidegate:gpu_utilisation:avg": "a GPU",
    "tidegate:engine_start_seconds:max": "an engine's process 1",
    "tidegate:engine_load_seconds:max": "an engine's process 1",
}
"""What a stand-in has not."""
WITHIN_SECONDS = 90

pytestmark = pytest.mark.timeout(240)


class Recorded:
    """What Prometheus has recorded."""

    def __init__(self, host: FleetHost, http: Http) -> None:
        self._url, self._http = host.prometheus_url, http

    async def series(self, query: str) -> list[tuple[dict[str, str], float]]:
        reply = await self._http.get(f"{self._url}/api/v1/query?query={quote(query)}", timeout_seconds=10)
        return [(one["metric"], float(one["value"][1])) for one in reply.json()["data"]["result"]]

    async def missing(self, selectors: set[str], *, within: float = WITHIN_SECONDS) -> set[str]:
        """Those without a value by then."""
        deadline = time.monotonic() + within
        while selectors and time.monotonic() < deadline:
            selectors = {selector for selector in selectors if not await self.series(selector)}
            await asyncio.sleep(1)
        return selectors

    async def health(self) -> set[str]:
        """How the evaluations of all rules went, and what was wrong with some."""
        data = (await self._http.get(f"{self._url}/api/v1/rules", timeout_seconds=10)).json()["data"]
        rules = [rule for group in data["groups"] for rule in group["rules"]]
        return {rule.get("lastError", rule["health"]) for rule in rules if rule["health"] != "unknown"}


@pytest.fixture
async def recorded(host: FleetHost) -> AsyncIterator[Recorded]:
    async with Http() as http:
        yield Recorded(host, http)


@pytest.mark.long
async def test_every_rule_records_what_users_and_engines_do(host: FleetHost, recorded: Recorded) -> None:
    text = rules_of(parse_spec(SPEC + SLOS, Delivery, file="delivery.yaml"))
    await host.load_rules(text)
    fleet = host.fleet(REGION)
    entry = (await fleet.deploy(stand_in("6"))).entry
    await fleet.deploy(stand_in("7", "--error-share", "0.5"))
    await fleet.shift(50)
    async with Users(entry, per_second=20):
        assert await recorded.missing(recorded_by(text)) == set()
        assert await recorded.health() == {"ok"}
        await errors_are_told_by_region_and_by_version(recorded)


async def errors_are_told_by_region_and_by_version(recorded: Recorded) -> None:
    for slo in ("availability", "served"):
        ((labels, share),) = await recorded.series(f'slo:sli_error:ratio_rate5m{{sloth_slo="{slo}"}}')
        assert labels["region"] == REGION
        assert 0.05 < share < 0.5, "half of the canary's requests fail, and it has half of all"
        ((_, burn),) = await recorded.series(f'slo:current_burn_rate:ratio{{sloth_slo="{slo}"}}')
        assert burn > 1
    by_version = {
        (labels["region"], labels["role"], labels["version"]): share
        for labels, share in await recorded.series('tidegate:error_ratio:rate1m{role=~"stable|canary"}')
    }
    assert by_version[REGION, "stable", "6"] == 0
    assert by_version[REGION, "canary", "7"] == pytest.approx(0.5, abs=0.25)


def recorded_by(text: str) -> set[str]:
    """A selector for what each rule records: its name, and the labels that the rule gives it."""
    document: dict[str, Any] = yaml.safe_load(text)
    rules = [rule for group in document["groups"] for rule in group["rules"] if "record" in rule]
    return {
        f"{rule['record']}{{{_matchers(rule.get('labels', {}))}}}" for rule in rules if rule["record"] not in NEEDS_MORE
    }


def _matchers(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
