"""The fleet host's HTTP: a method's arguments go in, a state comes out, or an error with its class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from rollouts.adapters.http import Http
from rollouts.errors import NotPossible, error_from_json
from rollouts.local.host import OF_REGION, Host
from rollouts.local.locks import Layout
from rollouts.local.region import LocalRegion
from rollouts.model import CarrierHeartbeat, RegionState
from tidegate.testing import FakeClock, FakeEngines, FakeProxy, an_engine


class Asked:
    """A host over one region in memory, and a client that talks to it."""

    def __init__(self, folder: Path) -> None:
        self.engines = FakeEngines()
        self.host = Host(Layout(folder), Http(), FakeClock())
        region = LocalRegion("eu-west-1", proxy=FakeProxy("eu-west-1"), engines=self.engines, clock=FakeClock())
        self.host.regions["eu-west-1"] = region

    async def post(self, path: str, **arguments: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.host.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            return await client.post(path, json=arguments)

    async def operation(self, operation: str, **arguments: Any) -> RegionState:
        reply = await self.post(f"/regions/eu-west-1/{operation}", **arguments)
        assert reply.status_code == 200, reply.text
        return RegionState.model_validate(reply.json())


def a_body(version: str) -> dict[str, Any]:
    return an_engine(version).model_dump(mode="json")


@pytest.fixture
def host(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


async def test_an_error_keeps_its_class_and_its_words(host: Asked) -> None:
    reply = await host.post("/regions/eu-west-1/shift", weight=25)
    assert reply.status_code == 409
    error = error_from_json(reply.json())
    assert isinstance(error, NotPossible)
    assert (error.message, error.hint) == ("there is no canary to shift 25 % of users to", "deploy one first")
    elsewhere = error_from_json((await host.post("/regions/nowhere/promote")).json())
    assert elsewhere.message == "there is no region nowhere here"


async def test_an_engine_that_is_none_is_a_bug_and_not_an_answer(host: Asked) -> None:
    with pytest.raises(ValueError, match="either an image or a command"):
        await host.post("/regions/eu-west-1/deploy", engine={"version": "7", "digest": "d", "model": "support-llm"})
    assert host.engines.started == []


async def test_what_is_no_method_of_the_api_is_not_called(host: Asked) -> None:
    for path in ("/regions/eu-west-1/stop", "/up", "/record"):
        assert (await host.post(path)).status_code == 404
    assert all(hasattr(LocalRegion, each) for each in OF_REGION)


async def test_no_matter_who_carries_a_delivery_is_heard_until_he_says_that_it_is_over(host: Asked) -> None:
    assert (await host.post("/carried")).json() is None
    await host.post("/attend", who="ci-7 (process 4711)", process=4711, unattended_seconds=900)
    told = CarrierHeartbeat.model_validate((await host.post("/carried")).json())
    assert (told.who, told.heard, told.unattended_seconds) == ("ci-7 (process 4711)", FakeClock().now(), 900.0)
    await host.post("/leave")
    assert (await host.post("/carried")).json() is None
