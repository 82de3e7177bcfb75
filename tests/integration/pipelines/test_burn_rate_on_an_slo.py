"""Whole deliveries through a real Envoy, judged on what a real Prometheus measured: an SLO that burns stops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from alike import long
from fakes.delivery.world import CHALLENGER, CHAMPION, CHAMPION_URL, World, right
from fakes.engines.local_fleet import REGION, Users, stand_in

from gates.adapters.prometheus import PrometheusEvents, PrometheusSource
from pipelines.model import Ending, Result
from pipelines.plan.gates import rules_of
from pipelines.ports import ChatAnswer
from pipelines.run.engine import deliver
from pipelines.spec.delivery import Delivery
from registry.model import ModelVersion
from rollouts.adapters.host_client import FleetHost
from rollouts.model import Engine
from tidegate.core.clock import SystemClock
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeChat

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}, compile: {mode: none}}
gates:
  budget: {poll_interval: 6s}
  burn_rate: {slo: %s}
slos:
  - {name: availability, objective: 99, errors: {}}
  - {name: served, objective: 99, errors: {counted_by: engine}}
  - {name: ttft, objective: 95, ttft: {below: 500ms}}
stages:
  - canary: {weights: [50], within: 2m, gates: [burn_rate]}
regions: {waves: [[eu-west-1]], bake: 1s}
traffic: {requests_per_second: 40, prompts: golden.jsonl}
"""
ERRORS = ("--error-share", "0.3")
SLOW = ("--tokens", "2", "--interval", "0.6")

pytestmark = pytest.mark.timeout(240)


class Talks(FakeChat):
    """Says the right thing the one who is asked: what smoke asks is not what this is about."""

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> ChatAnswer:
        return await super().ask(CHAMPION_URL, model, prompt, max_tokens=max_tokens)


class StandIns:
    """`Engines` whose challenger behaves as it is told."""

    def __init__(self, challenger: Sequence[str]) -> None:
        self._arguments = {CHAMPION: (), CHALLENGER: tuple(challenger)}

    async def prepare(self, version: ModelVersion, progress: Callable[[str], None], record: object = None) -> Engine:
        return stand_in(version.version, *self._arguments[version.version])

    def folder(self, version: ModelVersion) -> Path:
        return Path("/nowhere")


async def delivered(host: FleetHost, folder: Path, slo: str, challenger: Sequence[str]) -> tuple[Result, Users]:
    """What became of the challenger, and its users."""
    world = World(folder, parse_spec(SPEC % slo, Delivery, file="delivery.yaml"))
    world.clock = SystemClock()
    engines, fleet = StandIns(challenger), host.fleet(REGION)
    context = replace(
        world.context(),
        fleets={REGION: fleet},
        engines=engines,
        chat=Talks({CHAMPION_URL: right}),
        proxy=PrometheusSource(host.prometheus_url, settles_within=timedelta(seconds=2)),
        events=PrometheusEvents(host.prometheus_url),
    )
    await host.load_rules(rules_of(world.spec))
    state = await fleet.deploy(stand_in(CHAMPION))
    async with Users(state.entry, per_second=40) as users:
        result = await deliver(context)
    return result, users


@pytest.mark.long
@pytest.mark.parametrize("slo", ["availability", "served", "ttft"])
async def test_a_healthy_canary_passes(host: FleetHost, tmp_path: Path, slo: str) -> None:
    result, users = await delivered(host, tmp_path, slo, ())
    assert (result.ending, result.reason) == (Ending.DELIVERED, f"version {CHALLENGER} serves {REGION}")
    assert users.failed == []


@pytest.mark.slow(reason="Prometheus scrapes every two seconds, and a gate wants three scrapes")
@pytest.mark.parametrize(
    ("slo", "challenger"),
    [
        pytest.param("availability", ERRORS, id="errors that the proxy counts"),
        long("served", ERRORS, id="errors that the engine counts"),
        long("ttft", SLOW, id="late first tokens"),
    ],
)
async def test_a_canary_that_burns_its_budget_is_taken_back(
    host: FleetHost, tmp_path: Path, slo: str, challenger: Sequence[str]
) -> None:
    result, users = await delivered(host, tmp_path, slo, challenger)
    print(f"measured: {result.reason}")
    assert result.ending is Ending.ROLLED_BACK
    assert f"gate burn_rate: spends the error budget of {slo} " in result.reason
    state = await host.fleet(REGION).observe()
    assert state.stable and state.stable.version == CHAMPION and state.weight == 0
    assert {request.role for request in users.failed} <= {"canary"}
