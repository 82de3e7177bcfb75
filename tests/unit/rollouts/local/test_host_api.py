"""The fleet host's HTTP: what goes in is a operation, what comes out is a state or an error with its class."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rollouts.errors import NotPossible, RulesRefused, error_from_json
from rollouts.local.host_api import FAILED, OPERATIONS, HostApp
from rollouts.local.region import LocalRegion
from rollouts.local.watchdog import HeartbeatMonitor
from rollouts.model import CarrierHeartbeat, RegionPhase, RegionState
from tidegate.testing import FakeClock, FakeEngines, FakeProxy, an_engine


class Numbers:
    """`Metrics` that remember what they were told."""

    def __init__(self) -> None:
        self.rules = ""
        self.scraped: dict[str, str] = {}

    async def load_rules(self, text: str) -> None:
        if text == "nonsense":
            raise RulesRefused("prometheus refuses the rules: 1:1: what?")
        self.rules = text

    def scrape_also(self, name: str, address: str) -> None:
        self.scraped[name] = address

    def forget(self, name: str) -> None:
        self.scraped.pop(name, None)


class Host:
    """An application over one region in memory, and a client that talks to it."""

    def __init__(self) -> None:
        self.engines = FakeEngines()
        self.metrics = Numbers()
        self.stops = 0
        region = LocalRegion("eu-west-1", proxy=FakeProxy("eu-west-1"), engines=self.engines, clock=FakeClock())
        heartbeat = HeartbeatMonitor(FakeClock())
        self._app = HostApp({"eu-west-1": region}, self.metrics, heartbeat=heartbeat, stop=self._count).build()

    def _count(self) -> None:
        self.stops += 1

    async def get(self, path: str) -> httpx.Response:
        async with self._client() as client:
            return await client.get(path)

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        async with self._client() as client:
            return await client.post(path, json=body)

    async def operation(self, operation: str, body: Any = None) -> RegionState:
        reply = await self.post(f"/regions/eu-west-1/{operation}", {} if body is None else body)
        assert reply.status_code == 200, reply.text
        return RegionState.model_validate(reply.json())

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://host")


def a_body(version: str) -> dict[str, Any]:
    return an_engine(version).model_dump(mode="json")


@pytest.fixture
def host() -> Host:
    return Host()


async def test_a_whole_rollout_goes_over_the_wire(host: Host) -> None:
    assert (await host.operation("deploy", a_body("6"))).phase is RegionPhase.STEADY
    assert (await host.operation("deploy", a_body("7"))).phase is RegionPhase.TRIAL
    assert (await host.operation("mirror", {"percent": 100})).mirror == 100
    assert (await host.operation("shift", {"weight": 25})).weight == 25
    promoted = await host.operation("promote")
    assert promoted.stable
    assert promoted.stable.version == "7"
    back = await host.operation("rollback", {"to": "6"})
    assert back.stable
    assert back.stable.version == "6"


async def test_looking_at_a_region_changes_nothing(host: Host) -> None:
    await host.operation("deploy", a_body("6"))
    first, second = await host.get("/regions/eu-west-1"), await host.get("/regions/eu-west-1")
    assert first.json() == second.json()
    assert len(host.engines.started) == 1


async def test_an_error_keeps_its_class_and_its_words(host: Host) -> None:
    reply = await host.post("/regions/eu-west-1/shift", {"weight": 25})
    assert reply.status_code == FAILED
    error = error_from_json(reply.json())
    assert isinstance(error, NotPossible)
    assert (error.message, error.hint) == ("there is no canary to shift 25 % of users to", "deploy one first")


async def test_an_operation_that_is_no_json_of_ours_is_a_bug_and_not_an_answer(host: Host) -> None:
    with pytest.raises(ValueError, match="validation errors for Engine"):
        await host.post("/regions/eu-west-1/deploy", {"version": "7"})
    assert host.engines.started == []


async def test_a_host_that_is_asked_to_end_says_yes_at_once(host: Host) -> None:
    assert (await host.post("/stop")).status_code == 200
    assert host.stops == 1


async def test_rules_are_handed_on_and_a_refusal_keeps_its_words(host: Host) -> None:
    assert (await host.post("/rules", {"text": "groups: []"})).status_code == 200
    refused = error_from_json((await host.post("/rules", {"text": "nonsense"})).json())
    assert isinstance(refused, RulesRefused)
    assert refused.message == "prometheus refuses the rules: 1:1: what?"
    assert host.metrics.rules == "groups: []"


async def test_numbers_of_others_are_scraped_until_they_are_forgotten(host: Host) -> None:
    await host.post("/scrape", {"name": "support-llm", "address": "http://127.0.0.1:9400"})
    assert host.metrics.scraped == {"support-llm": "http://127.0.0.1:9400"}
    for _ in range(2):
        assert (await host.post("/forget", {"name": "support-llm"})).status_code == 200
    assert host.metrics.scraped == {}


async def test_looking_is_the_only_thing_that_a_browser_can_do(host: Host) -> None:
    assert (await host.get("/stop")).status_code == 405
    assert (await host.get("/regions/eu-west-1/promote")).status_code == 405


def test_every_call_of_the_port_that_changes_something_is_an_operation() -> None:
    assert set(OPERATIONS) == {"deploy", "mirror", "shift", "promote", "rollback", "settle", "restart"}


async def test_no_matter_who_carries_a_delivery_is_heard_until_he_says_that_it_is_over() -> None:
    host = Host()
    assert (await host.get("/carried")).json() is None
    await host.post("/carried", {"who": "ci-7 (process 4711)", "process": 4711, "unattended_seconds": 900})
    told = CarrierHeartbeat.model_validate((await host.get("/carried")).json())
    assert (told.who, told.heard, told.unattended_seconds) == ("ci-7 (process 4711)", FakeClock().now(), 900.0)
    await host.post("/carried", {"who": ""})
    assert (await host.get("/carried")).json() is None
