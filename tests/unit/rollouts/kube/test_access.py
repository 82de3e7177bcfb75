"""Credentials: renewed in time, once for many, and never shown."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

import pytest
from fakes.kube.api import Api
from fakes.kube.simulated_time import SimulatedTime
from fakes.kube.transport import FakeTransport

from rollouts.adapters.kube.access import Access, Credential, Server
from rollouts.adapters.kube.client import KubeClient
from rollouts.errors import NoAccess, Unauthorized
from rollouts.kube.resources import CONFIG_MAPS, PODS

SERVER = Server("https://x", proxy="http://user:hunter2@proxy")


class Issuer:
    """Gives a new token each time it is asked."""

    def __init__(self, *, good_until: datetime | None = None) -> None:
        self.good_until = good_until
        self.given = 0
        self.broken = False

    async def __call__(self) -> Credential:
        await asyncio.sleep(0)
        if self.broken:
            raise NoAccess("the plugin failed")
        self.given += 1
        return Credential(SERVER, f"Bearer token-{self.given}", self.good_until)


@pytest.fixture
def issuer(time: SimulatedTime) -> Issuer:
    return Issuer(good_until=time.now() + timedelta(minutes=15))


@pytest.fixture
def client(issuer: Issuer, api: Api, time: SimulatedTime) -> KubeClient:
    access = Access(issuer, time)
    return KubeClient(access, namespace="llm", clock=time, transport=FakeTransport(api))


async def test_a_credential_is_kept_until_shortly_before_its_end(issuer: Issuer, time: SimulatedTime) -> None:
    access = Access(issuer, time)
    first = await access.credential()
    time.advance(14 * 60)
    assert await access.credential() is first
    time.advance(30)
    assert (await access.credential()).authorization == "Bearer token-2"


async def test_a_credential_without_an_end_is_kept(time: SimulatedTime) -> None:
    issuer = Issuer()
    access = Access(issuer, time)
    await access.credential()
    time.advance(10**7)
    await access.credential()
    assert issuer.given == 1


async def test_many_requests_share_one_renewal(client: KubeClient, issuer: Issuer, api: Api) -> None:
    api.access.require("token-2")
    await asyncio.gather(*(client.list(PODS) for _ in range(20)))
    assert issuer.given == 2


async def test_an_expired_token_is_renewed_before_the_server_sees_it(
    client: KubeClient, issuer: Issuer, api: Api, time: SimulatedTime
) -> None:
    api.access.require("token-1")
    await client.list(PODS)
    time.advance(15 * 60)
    api.access.require("token-2")
    await client.list(PODS)
    assert issuer.given == 2
    assert len(api.calls) == 2


async def test_a_refused_token_is_renewed_once_for_a_write_too(client: KubeClient, issuer: Issuer, api: Api) -> None:
    api.access.require("token-2")
    await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    api.access.require("none")
    with pytest.raises(Unauthorized):
        await client.list(PODS)
    assert issuer.given == 3


async def test_the_old_credential_is_used_while_no_new_one_can_be_got(
    client: KubeClient, issuer: Issuer, api: Api, time: SimulatedTime, caplog: pytest.LogCaptureFixture
) -> None:
    api.access.require("token-1")
    await client.list(PODS)
    issuer.broken = True
    time.advance(15 * 60 - 20)
    await client.list(PODS)
    assert caplog.messages == ["the plugin failed"]
    api.access.require("token-2")
    with pytest.raises(NoAccess):
        await client.list(PODS)
    issuer.broken = False
    await client.list(PODS)


async def test_without_any_credential_nothing_is_sent(client: KubeClient, issuer: Issuer, api: Api) -> None:
    issuer.broken = True
    with pytest.raises(NoAccess, match="the plugin failed"):
        await client.list(PODS)
    assert api.calls == []


async def test_no_secret_is_ever_shown(
    client: KubeClient, api: Api, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [repr(await issuer()), repr(SERVER), repr(vars(client))]
    api.access.require("none")
    with pytest.raises(Unauthorized) as caught:
        await client.list(PODS)
    shown += [repr(caught.value), str(caught.value), caught.value.detail or "", caplog.text]
    assert not [text for text in shown if "token-" in text or "hunter2" in text]
