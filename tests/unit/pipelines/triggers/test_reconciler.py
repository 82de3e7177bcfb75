"""One delivery at a time is started for what the registry shows, and none for what the ledger answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.delivery.registry import FakeLedgers, FakeMarks, FakeStarter, Inbox

from pipelines.requests import DeliveryRequest, QueuedRequest, RequestState
from pipelines.triggers.reconciler import Reconciler
from registry.model import DeliverySummary
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeClock


class Ground:
    """A reconciler and its world; a moment passes before each look."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.marks, self.ledgers, self.starter = FakeMarks(), FakeLedgers(), FakeStarter(self._opens)
        self.inbox = Inbox(folder / "inbox.db")
        self.said: list[str] = []
        self.opens = True
        self.restart()

    def restart(self) -> None:
        """The process of before is gone; its files are not."""
        every, world = timedelta(seconds=30), (self.inbox, self.marks, self.ledgers, self.starter, self.clock)
        self.reconciler = Reconciler("support-llm", "challenger", every, *world, self.said.append)

    async def look(self) -> None:
        self.clock.elapsed += 60
        await self.reconciler.once()
        self.clock.elapsed += 60

    def request(self, version: int) -> None:
        """As a webhook brings it; the registry shows it too."""
        self.marks.means["challenger"] = str(version)
        made = DeliveryRequest(model="support-llm", version=str(version), alias="challenger")
        self.inbox.hear(f"m{self.clock.elapsed}-{version}", made, self.clock.now())

    def delivery(self, version: int, id: str) -> None:
        """Somebody opens one."""
        now = self.clock.now()
        self.ledgers.all[id] = DeliverySummary(
            id=id, name="support-llm", version=str(version), champion="1", started=now, host="h", pid=1, heartbeat=now
        )

    def ends(self, id: str) -> None:
        over = {"ended": self.clock.now(), "outcome": "delivered"}
        self.ledgers.all[id] = self.ledgers.all[id].model_copy(update=over)

    def _opens(self, entry: QueuedRequest) -> None:
        if self.opens:
            self.delivery(int(entry.request.version), f"d{entry.request.version}")

    @property
    def states(self) -> dict[str, RequestState]:
        return {entry.request.version: entry.state for entry in reversed(self.inbox.all)}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.inbox.close()


async def test_a_request_is_started_and_over_when_its_delivery_is(ground: Ground) -> None:
    ground.request(7)
    await ground.look()
    assert (ground.starter.started, ground.states) == (["7"], {"7": RequestState.STARTED})
    ground.ends("d7")
    await ground.look()
    assert (ground.starter.started, ground.states) == (["7"], {"7": RequestState.OVER})
    assert ground.said[-1] == "models:/support-llm/7@challenger: over: delivery d7: delivered"


async def test_a_webhook_that_was_lost_is_made_up_for_by_looking(ground: Ground) -> None:
    await ground.look()
    ground.marks.means = {"challenger": "7"}
    await ground.look()
    assert ground.starter.started == ["7"]


async def test_the_ledger_is_asked_only_while_a_request_is_open(ground: Ground) -> None:
    await ground.look()
    assert ground.ledgers.listed == 0
    ground.request(7)
    await ground.look()
    ground.ends("d7")
    await ground.look()
    asked = ground.ledgers.listed
    await ground.look()
    assert (ground.states, ground.ledgers.listed) == ({"7": RequestState.OVER}, asked)


async def test_nothing_starts_while_a_delivery_of_the_model_runs_no_matter_who_started_it(ground: Ground) -> None:
    ground.delivery(6, "theirs")
    ground.request(7)
    await ground.look()
    assert ground.starter.started == []
    ground.ends("theirs")
    await ground.look()
    assert ground.starter.started == ["7"]


async def test_the_same_version_delivered_by_somebody_else_is_not_started_again(ground: Ground) -> None:
    ground.delivery(7, "theirs")
    ground.request(7)
    await ground.look()
    ground.ends("theirs")
    await ground.look()
    assert (ground.starter.started, ground.states) == ([], {"7": RequestState.OVER})


async def test_an_old_alias_whose_version_was_delivered_before_starts_nothing(ground: Ground) -> None:
    ground.delivery(7, "yesterday")
    ground.ends("yesterday")
    ground.marks.means = {"challenger": "7"}
    await ground.look()
    assert (ground.starter.started, ground.states) == ([], {"7": RequestState.OVER})


async def test_an_alias_that_is_set_again_starts_again(ground: Ground) -> None:
    ground.request(7)
    await ground.look()
    ground.ends("d7")
    await ground.look()
    ground.marks.means = {}
    await ground.look()
    ground.request(7)
    await ground.look()
    assert ground.starter.started == ["7", "7"]


async def test_of_those_that_come_meanwhile_only_the_newest_is_delivered(ground: Ground) -> None:
    for version in (7, 8, 9):
        ground.request(version)
        await ground.look()
    ground.ends("d7")
    await ground.look()
    assert ground.starter.started == ["7", "9"]
    assert ground.states == {"7": RequestState.OVER, "8": RequestState.WITHDRAWN, "9": RequestState.STARTED}


async def test_a_delivery_that_never_opens_is_tried_three_times(ground: Ground) -> None:
    ground.opens, ground.starter.running = False, False
    ground.request(7)
    for _ in range(12):
        await ground.look()
    assert (ground.starter.started, ground.states) == (["7"] * 3, {"7": RequestState.OVER})
    assert any(said.endswith("try 1 ended without a delivery: it is unknown who asks") for said in ground.said)
    assert ground.said[-1].endswith("given up: 3 tries, no delivery: it is unknown who asks")


async def test_what_cannot_be_started_is_told_and_tried_again(ground: Ground) -> None:
    ground.starter.able = False
    ground.request(7)
    await ground.look()
    assert ground.said[-1].endswith("try 1 ended without a delivery: no room")
    ground.starter.able = True
    await ground.look()
    assert ground.starter.started == ["7"]


async def test_a_process_that_is_replaced_in_the_middle_starts_nothing_twice(ground: Ground) -> None:
    ground.opens = False
    ground.request(7)
    await ground.look()
    ground.restart()
    await ground.look()
    ground.delivery(7, "late")
    await ground.look()
    assert (ground.starter.started, ground.states) == (["7"], {"7": RequestState.STARTED})


async def test_a_registry_that_does_not_answer_is_asked_again_and_makes_us_unready(ground: Ground) -> None:
    await ground.look()
    ground.marks.reachable = False
    with pytest.raises(OutsideError):
        await ground.look()
    assert ground.reconciler.is_current() is False
    ground.marks.reachable = True
    ground.request(7)
    await ground.look()
    assert ground.starter.started == ["7"]
