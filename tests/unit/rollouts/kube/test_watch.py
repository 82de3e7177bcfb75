"""Watches: whatever is cut, repeated or expired, each change is told once and none is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeTransport
from fakes.kube.streams import Fold, Harm, RoughTransport
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.adapters.kube.kubeconfig import ApiServer, Credential
from rollouts.errors import Forbidden, NoAccess, NotFound, Unauthorized
from rollouts.kube.model import WatchEventType
from rollouts.kube.resources import CONFIG_MAPS, NODE_POOLS

LONG_SECONDS = 3600.0
"""Longer than any pause, silence and stream."""


@dataclass
class World:
    """A server in memory, the way to it, and somebody who watches."""

    time: SimulatedTime = field(default_factory=SimulatedTime)
    harms: list[Harm] = field(default_factory=list)
    labels: str = ""
    token: str = "t0"
    fold: Fold = field(default_factory=Fold)

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(time=self.time, namespace="llm")
        self.api = Api(self.cluster)

        async def credential() -> Credential:
            return Credential(ApiServer("https://x"), f"Bearer {self.token}")

        self.client = KubeClient(
            CredentialProvider(credential, self.time),
            namespace="llm",
            clock=self.time,
            transport=RoughTransport(FakeTransport(self.api), self.harms),
            chance=lambda: 0.5,
        )

    def write(self, name: str, value: str, *, role: str = "stable") -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"role": role}},
            "data": {"value": value, "odd": "\u0085\u2028"},
        }
        if self.cluster.find(CONFIG_MAPS, name):
            self.cluster.patch(CONFIG_MAPS, name, {"data": body["data"], "metadata": {"labels": {"role": role}}})
        else:
            self.cluster.create(CONFIG_MAPS, body)

    def delete(self, name: str) -> None:
        if self.cluster.find(CONFIG_MAPS, name):
            self.cluster.delete(CONFIG_MAPS, name)

    def versions(self) -> dict[tuple[str, str], str]:
        """What the server has."""
        meta = [item["metadata"] for item in self.cluster.list(CONFIG_MAPS, labels=self.labels)]
        return {(each["namespace"], each["name"]): each["resourceVersion"] for each in meta}

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Somebody folds what the watch says, meanwhile; an error of the watch is raised at the end."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            (ended,) = await asyncio.gather(watching, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            raise ended or AssertionError("the watch ended by itself")

    async def _watch(self) -> None:
        async with aclosing(self.client.watch(CONFIG_MAPS, labels=self.labels)) as changes:
            async for change in changes:
                self.fold.take(change)


async def test_a_quiet_watch() -> None:
    world = World()
    world.write("a", "1")
    async with world.watched():
        await world.time.sleep(1)
        assert world.fold.synced == 1
        world.write("a", "2")
        world.write("b", "1")
        world.delete("a")
        await world.time.sleep(1)
    assert world.fold.told == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert world.versions() == world.fold.versions


async def test_a_stream_is_asked_for_again_when_the_server_ends_it() -> None:
    world = World()
    async with world.watched():
        await world.time.sleep(LONG_SECONDS)
        world.write("a", "1")
        await world.time.sleep(5)
    assert world.fold.told == [("ADDED", "a")]
    watches = [call for call in world.api.calls if call.verb == "watch"]
    assert len(watches) == 9  # of 450 s each, and the one of now
    assert sum(call.verb == "list" for call in world.api.calls) == 1


@pytest.mark.parametrize("harm", [harm for harm in Harm if harm is not Harm.NONE])
async def test_whatever_happens_to_a_stream(harm: Harm) -> None:
    world = World(harms=[harm] * 5)
    async with world.watched():
        await world.time.sleep(1)
        for number in range(8):
            world.write(f"a{number % 3}", str(number))
            await world.time.sleep(0.3)
        await world.time.sleep(LONG_SECONDS)
    assert world.fold.versions == world.versions()
    if harm is not Harm.FAILED:  # it needs a list, and a list knows no steps between
        births, changes = range(3), range(3, 8)
        assert world.fold.told == [
            *[("ADDED", f"a{number}") for number in births],
            *[("MODIFIED", f"a{number % 3}") for number in changes],
        ]


async def test_a_stream_that_is_cut_at_every_event() -> None:
    world = World()
    world.api.faults.cut_every_watch(after=1)
    async with world.watched():
        await world.time.sleep(1)
        for number in range(20):
            world.write(f"a{number}", "1")
        await world.time.sleep(60)
    assert world.fold.told == [("ADDED", f"a{number}") for number in range(20)]


@pytest.mark.parametrize("as_status", [True, False], ids=["status", "event"])
async def test_an_expired_version_is_listed_again_and_only_the_difference_told(as_status: bool) -> None:
    world = World()
    for name in ("same", "changed", "gone", "replaced"):
        world.write(name, "1")
    async with world.watched():
        await world.time.sleep(1)
        world.fold.told.clear()
        world.api.vanish()
        world.write("changed", "2")
        world.write("new", "1")
        world.delete("gone")
        world.delete("replaced")
        world.write("replaced", "1")
        if as_status:
            world.api.faults.expired_version(as_status=True)
        else:
            world.cluster.store.compact()
        world.api.come_back()
        await world.time.sleep(60)
    assert sorted(world.fold.told) == [
        ("ADDED", "new"),
        ("ADDED", "replaced"),
        ("DELETED", "gone"),
        ("DELETED", "replaced"),
        ("MODIFIED", "changed"),
    ]
    assert world.fold.synced == 1
    assert world.fold.versions == world.versions()


async def test_a_version_that_stays_expired_is_not_asked_for_in_a_hot_loop() -> None:
    world = World()
    world.api.faults.expired_version(times=None)
    async with world.watched():
        await world.time.sleep(600)
    assert len(world.api.calls) < 70  # of lists and streams together, one pair in 22.5 s at last


@pytest.mark.parametrize(
    "fault",
    [
        lambda world: world.api.faults.busy(retry_after=7, verbs=("watch",), times=3),
        lambda world: world.api.faults.failing(code=500, verbs=("watch",), times=5),
        lambda world: world.api.faults.failing(code=503, verbs=("watch", "list"), times=20),
        lambda world: world.api.vanish(),
    ],
    ids=["429", "500", "503", "gone"],
)
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "at-once"])
async def test_a_server_in_trouble_is_waited_for(fault: Callable[[World], None], begun: bool) -> None:
    world = World()
    world.write("a", "1")
    if not begun:
        fault(world)
    async with world.watched():
        await world.time.sleep(1)
        if begun:
            fault(world)
            world.api.cut_watches()
        world.write("a", "2")
        world.write("b", "1")
        await world.time.sleep(LONG_SECONDS)
        world.api.come_back()
        await world.time.sleep(60)
    assert world.fold.versions == world.versions()
    assert world.fold.synced == 1


async def test_a_busy_server_is_asked_when_it_said_and_no_earlier() -> None:
    world = World()
    async with world.watched():
        await world.time.sleep(1)
        world.api.faults.busy(retry_after=40, verbs=("watch",))
        world.api.cut_watches()
        await world.time.sleep(39)
        before = len(world.api.calls)
        await world.time.sleep(3)
        assert len(world.api.calls) == before + 1


async def test_an_expired_token_is_renewed() -> None:
    world = World()
    world.api.access.require("t0")
    async with world.watched():
        await world.time.sleep(1)
        world.token = "t1"
        world.api.access.require("t1")
        world.api.cut_watches()
        world.write("a", "1")
        await world.time.sleep(2)
        assert world.fold.told == [("ADDED", "a")]


async def test_a_token_that_stays_wrong_is_waited_for_once_the_watch_runs() -> None:
    world = World()
    world.api.access.require("t0")
    async with world.watched():
        await world.time.sleep(1)
        world.api.access.require("t9")
        world.api.cut_watches()
        world.write("a", "1")
        await world.time.sleep(LONG_SECONDS)
        world.token = "t9"
        await world.time.sleep(60)
        assert world.fold.told == [("ADDED", "a")]


async def test_what_stays_wrong_is_said_at_the_start() -> None:
    async def first(world: World) -> None:
        async with aclosing(world.client.watch(CONFIG_MAPS)) as changes:
            await anext(changes)

    world = World()
    world.api.access.require("other")
    with pytest.raises(Unauthorized):
        await first(world)

    world = World()
    world.api.access.allow_only({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]})
    with pytest.raises(Forbidden):
        await first(world)

    world = World()
    world.cluster.uninstall(NODE_POOLS)
    with pytest.raises(NotFound):
        await anext(world.client.watch(NODE_POOLS))


async def test_without_credentials_no_watch_begins() -> None:
    async def none() -> Credential:
        raise NoAccess("no token")

    world = World()
    client = KubeClient(CredentialProvider(none, world.time), namespace="llm", clock=world.time)
    with pytest.raises(NoAccess):
        await anext(client.watch(CONFIG_MAPS))


async def test_rights_that_are_lost_for_a_while_end_no_watch() -> None:
    world = World()
    async with world.watched():
        await world.time.sleep(1)
        world.api.access.allow_only()
        world.api.cut_watches()
        world.write("a", "1")
        await world.time.sleep(LONG_SECONDS)
        world.api.access.allow_only({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        await world.time.sleep(60)
        assert world.fold.told == [("ADDED", "a")]


async def test_the_log_tells_of_long_absences_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world = World()
    world.api.faults.cut_every_watch(after=1, times=10)
    async with world.watched():
        for number in range(10):
            world.write(f"a{number}", "1")
            await world.time.sleep(2)
        assert caplog.messages == []
        world.api.vanish()
        await world.time.sleep(LONG_SECONDS)
        world.api.come_back()
        await world.time.sleep(60)
    assert caplog.messages == [
        "the watch of configmaps is away: https://x cannot be reached",
        "the watch of configmaps is back",
    ]


async def test_bookmarks_are_signs_of_life() -> None:
    world = World()
    async with aclosing(world.client.watch(CONFIG_MAPS)) as changes:
        kinds = [(await anext(changes)).kind for _ in range(4)]
    assert kinds == [WatchEventType.SYNCED, *[WatchEventType.BOOKMARK] * 3]
    assert 180 <= world.time.elapsed < 190


async def test_a_closed_watch_asks_nothing_more() -> None:
    world = World()
    async with aclosing(world.client.watch(CONFIG_MAPS)) as changes:
        await anext(changes)
    before = len(world.api.calls)
    await world.time.sleep(LONG_SECONDS)
    assert len(world.api.calls) == before


Happening = Callable[[World], None]
names = st.sampled_from(["a", "b", "c", "d"])


def _token(world: World) -> None:
    world.token += "+"
    world.api.access.require(world.token)
    world.api.cut_watches()


happenings: st.SearchStrategy[Happening] = st.one_of(
    st.builds(
        lambda name, value, role: lambda world: world.write(name, str(value), role=role),
        names,
        st.integers(0, 9),
        st.sampled_from(["stable", "canary"]),
    ),
    st.builds(lambda name: lambda world: world.delete(name), names),
    st.sampled_from(
        [
            lambda world: world.api.cut_watches(),
            lambda world: world.cluster.store.compact(),
            lambda world: world.api.faults.expired_version(),
            lambda world: world.api.faults.expired_version(as_status=True),
            lambda world: world.api.faults.cut_every_watch(after=1, times=3),
            lambda world: world.api.faults.busy(retry_after=3, times=2),
            lambda world: world.api.faults.failing(code=500, times=3),
            lambda world: world.api.faults.failing(code=504, verbs=("list",), times=9),
            lambda world: world.api.vanish(),
            lambda world: world.api.come_back(),
            _token,
        ]
    ),
)


@settings(max_examples=15, deadline=None)
@given(
    story=st.lists(st.tuples(happenings, st.sampled_from([0.0, 0.2, 5.0, 100.0])), max_size=25),
    harms=st.lists(st.sampled_from(list(Harm)), max_size=12),
    labels=st.sampled_from(["", "role=canary"]),
)
def test_whatever_is_cut_repeated_or_expired_the_end_is_the_servers(
    story: list[tuple[Happening, float]], harms: list[Harm], labels: str
) -> None:
    """`Fold` refuses whatever is told twice; at the end nothing may be missing."""

    async def tell() -> None:
        world = World(harms=harms, labels=labels)
        world.api.access.require(world.token)
        async with world.watched():
            for happening, seconds in story:
                happening(world)
                await world.time.sleep(seconds)
            world.api.faults.clear()
            await world.time.sleep(LONG_SECONDS)
            assert world.fold.versions == world.versions()
            assert world.fold.synced == 1

    asyncio.run(tell())


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    writes=st.lists(st.tuples(names, st.booleans(), st.sampled_from([0.0, 0.2, 5.0])), max_size=20),
    harms=st.lists(st.sampled_from([harm for harm in Harm if harm is not Harm.FAILED]), max_size=12),
)
def test_without_an_expired_version_every_single_change_is_told(
    writes: list[tuple[str, bool, float]], harms: list[Harm]
) -> None:
    async def tell() -> None:
        world = World(harms=harms)
        done: list[tuple[str, str]] = []
        world.cluster.on_change(lambda event: done.append((event.change, event.name)))
        async with world.watched():
            await world.time.sleep(30)
            for name, delete, seconds in writes:
                world.delete(name) if delete else world.write(name, str(world.time.elapsed))
                await world.time.sleep(seconds)
            await world.time.sleep(LONG_SECONDS)
        assert world.fold.told == done

    asyncio.run(tell())
