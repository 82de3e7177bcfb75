"""Of several that open one model's delivery, or carry one on, exactly one does: whatever comes between two requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from fakes.clock import FakeClock, sleep_of
from fakes.clusters.interleaving import Interleaving
from fakes.delivery.records import slow
from fakes.delivery.store import MemoryStore

from registry.conventions import CARRIER, OWNER_PREFIX
from registry.deliveries import LIVE_SECONDS, MlflowDeliveries
from registry.errors import DeliveryLost, DeliveryRuns
from registry.ledger import MlflowLedger
from registry.model import Event, ModelVersion
from registry.record import Carrier
from tidegate.core.clock import WATCH_SECONDS
from tidegate.core.errors import Refused

NAME = "support-llm"
VERSION = ModelVersion(name=NAME, version="2", digest="d" * 64, files={}, size_bytes=0)
SEEDS = range(20)


class Place:
    """One store, and processes of many machines."""

    def __init__(self, seed: int) -> None:
        self.story = Interleaving(seed, longest_seconds=4.0)
        self.store = MemoryStore(self.story.turn)

    def deliveries(self, host: str) -> MlflowDeliveries:
        return MlflowDeliveries(self.store, self.story.time, host=host, pid=1, sleep=self.story.sleep)

    async def all_at_once(self, *work: Callable[[], MlflowLedger]) -> list[MlflowLedger]:
        """Those that may carry it; each begins a little later or earlier than the others."""

        async def one(request: Callable[[], MlflowLedger]) -> MlflowLedger | None:
            await self.story.time.sleep(self.story.latency())
            try:
                return await self.story.process(request)
            except Refused:
                return None

        return [ledger for ledger in await asyncio.gather(*map(one, work)) if ledger is not None]

    def opens(self, host: str) -> Callable[[], MlflowLedger]:
        return lambda: self.deliveries(host).open_delivery(VERSION, None, spec_digest="s")

    def resumes(self, host: str, delivery: str) -> Callable[[], MlflowLedger]:
        return lambda: self.deliveries(host).take_over(delivery)


@pytest.mark.parametrize("seed", SEEDS)
async def test_of_several_that_open_at_once_exactly_one_does(seed: int) -> None:
    place = Place(seed)
    opened = await place.all_at_once(*map(place.opens, ("ci-1", "ci-2", "laptop")))
    listed = await place.story.process(lambda: place.deliveries("x").deliveries(NAME))
    assert [each.delivery for each in opened] == [each.id for each in listed], f"seed {seed}"
    assert len(opened) == 1, f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_of_several_that_resume_at_once_exactly_one_does(seed: int) -> None:
    place = Place(seed)
    dead = await place.story.process(place.opens("gone"))
    await place.story.time.sleep(LIVE_SECONDS + 1)
    hosts = ("ci-1", "ci-2", "laptop")
    resumed = await place.all_at_once(*(place.resumes(host, dead.delivery) for host in hosts))
    assert len(resumed) == 1, f"seed {seed}"
    [one] = resumed
    assert one.over == {dead.owner}
    await place.story.process(lambda: one.append(slow()[0]))
    with pytest.raises(DeliveryLost, match="carried on by another process"):
        await place.story.process(lambda: dead.append(slow()[1]))


async def test_a_claim_of_one_that_died_holds_nobody_up_for_ever() -> None:
    place = Place(2)
    dead = await place.story.process(place.opens("gone"))
    await place.story.time.sleep(LIVE_SECONDS + 1)
    killed = asyncio.ensure_future(place.story.process(place.resumes("killed", dead.delivery)))

    def claimed() -> bool:
        return any(key.startswith(OWNER_PREFIX) for key in place.store.runs[dead.delivery].params)

    while not claimed():
        await place.story.time.sleep(0.01)
    killed.cancel()
    await place.story.time.sleep(2 * LIVE_SECONDS)
    assert len(await place.all_at_once(place.resumes("ci-1", dead.delivery))) == 1


class Ahead(FakeClock):
    """Of a machine whose clock is wrong."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


def test_a_live_delivery_is_not_closed_by_one_whose_clock_is_ahead_nor_by_one_of_the_same_name() -> None:
    store, theirs, ours = MemoryStore(), FakeClock(), Ahead()
    carrier = MlflowDeliveries(store, theirs, host="tidegate-0")
    ledger = carrier.open_delivery(VERSION, None, spec_digest="s")
    said = Carrier.model_validate_json(ledger.run.tags[CARRIER])
    elsewhere = said.model_copy(update={"machine": "another boot", "pid": 999999})
    store.log(ledger.delivery, tags={CARRIER: elsewhere.model_dump_json()})

    def both_go_on(seconds: float) -> None:
        theirs.elapsed = ours.elapsed = ours.elapsed + seconds
        if ours.elapsed % 10 < seconds:
            ledger.beat()

    other = MlflowDeliveries(store, ours, host="tidegate-0", sleep=both_go_on)
    for act in (
        lambda: other.open_delivery(VERSION, None, spec_digest="s"),
        lambda: other.take_over(ledger.delivery),
    ):
        with pytest.raises(DeliveryRuns, match=r"on tidegate-0 \(process 999999\)"):
            act()
    ledger.append(slow()[0])
    # It dies: nothing changes while it is watched.
    other = MlflowDeliveries(store, ours, host="tidegate-0", sleep=sleep_of(ours))
    begun = ours.elapsed
    assert other.open_delivery(VERSION, None, spec_digest="s").over == {ledger.owner}
    assert ours.elapsed - begun <= WATCH_SECONDS + LIVE_SECONDS


def test_an_answer_from_outside_is_no_sign_of_life() -> None:
    clock = FakeClock()
    deliveries = MlflowDeliveries(MemoryStore(), clock, sleep=sleep_of(clock))
    delivery = deliveries.open_delivery(VERSION, None, spec_digest="s").delivery
    before = deliveries.summary(delivery).heartbeat
    clock.elapsed += 30
    answer = Event(at=clock.now(), step="freeze", kind="approved", message="ann", data={"by": "ann"})
    deliveries.join(delivery, carries=False).append(answer)
    assert deliveries.summary(delivery).heartbeat == before
    assert deliveries.events(delivery)[-1] == answer
