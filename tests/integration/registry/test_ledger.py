"""What every ledger promises: the fake that other rooms test with, and MLflow itself."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pytest
from fakes.clock import sleep_of
from fakes.delivery.ledger import FakeDeliveries, FakeLedger
from fakes.delivery.records import slow

from registry.deliveries import MlflowDeliveries
from registry.errors import DeliveryLost, DeliveryRuns, StopAsked
from registry.ledger import MlflowLedger
from registry.model import DeliverySummary, Event, ModelVersion
from registry.ownership import LIVE_SECONDS
from tidegate.testing import FakeClock, MemoryStore


class AnyDeliveries(Protocol):
    def open_delivery(
        self, version: ModelVersion, champion: ModelVersion | None, *, spec_digest: str
    ) -> MlflowLedger | FakeLedger: ...
    def join(self, delivery: str, *, carries: bool = True) -> MlflowLedger | FakeLedger: ...
    def deliveries(self, name: str, *, last: int | None = None) -> list[DeliverySummary]: ...
    def events(self, delivery: str) -> list[Event]: ...
    def is_alive(self, delivery: DeliverySummary) -> bool: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["fake", "memory", "server"])
def deliveries(request: pytest.FixtureRequest, clock: FakeClock) -> AnyDeliveries:
    if request.param == "fake":
        return FakeDeliveries(clock)
    if request.param == "memory":
        return MlflowDeliveries(MemoryStore(), clock, sleep=sleep_of(clock))
    return MlflowDeliveries(request.getfixturevalue("server"), clock, sleep=sleep_of(clock))


def version(name: str, number: str = "2") -> ModelVersion:
    return ModelVersion(name=name, version=number, digest="d" * 64, files={}, size_bytes=0)


@pytest.fixture
def begin(deliveries: AnyDeliveries, name: str) -> Callable[[], MlflowLedger | FakeLedger]:
    return lambda: deliveries.open_delivery(version(name), version(name, "1"), spec_digest="s")


Begin = Callable[[], MlflowLedger | FakeLedger]


def test_events_are_read_back_as_they_were_written(deliveries: AnyDeliveries, begin: Begin) -> None:
    ledger = begin()
    for event in slow()[:5]:
        ledger.append(event)

    assert deliveries.events(ledger.delivery) == slow()[:5]


def test_an_open_delivery_is_listed_as_running(deliveries: AnyDeliveries, begin: Begin, name: str) -> None:
    ledger = begin()
    ledger.append(slow()[1])

    [summary] = deliveries.deliveries(name)
    assert (summary.id, summary.name, summary.version, summary.champion) == (ledger.delivery, name, "2", "1")
    assert (summary.ended, summary.outcome, summary.last_step) == (None, None, "build")
    assert deliveries.is_alive(summary)


@pytest.mark.parametrize("outcome", ["delivered", "rolled-back", "inconclusive", "interrupted", "failed"])
def test_a_closed_delivery_says_how_and_why(
    deliveries: AnyDeliveries, begin: Begin, name: str, clock: FakeClock, outcome: str
) -> None:
    ledger = begin()
    clock.elapsed += 30
    ledger.close(outcome, "because")

    [summary] = deliveries.deliveries(name)
    assert (summary.outcome, summary.reason, summary.ended) == (outcome, "because", clock.now())
    assert not deliveries.is_alive(summary)


def test_an_unknown_outcome_is_a_mistake_of_the_caller(begin: Begin) -> None:
    ledger = begin()

    with pytest.raises(ValueError, match="expected one of delivered"):
        ledger.close("great", "because")


def test_two_deliveries_of_one_model_never_run_at_once(deliveries: AnyDeliveries, begin: Begin, name: str) -> None:
    first = begin()

    with pytest.raises(DeliveryRuns, match=f"delivery {first.delivery} of {name} runs"):
        begin()
    assert [summary.id for summary in deliveries.deliveries(name)] == [first.delivery]


def test_after_one_ended_the_next_may_begin(
    deliveries: AnyDeliveries, begin: Begin, name: str, clock: FakeClock
) -> None:
    first = begin()
    first.close("rolled-back", "too slow")
    clock.elapsed += 1
    second = begin()

    assert [summary.id for summary in deliveries.deliveries(name)] == [second.delivery, first.delivery]
    assert [summary.id for summary in deliveries.deliveries(name, last=1)] == [second.delivery]


def test_two_models_are_delivered_at_once(deliveries: AnyDeliveries, begin: Begin, name: str) -> None:
    begin()

    deliveries.open_delivery(version(f"{name}-other"), None, spec_digest="s")


def test_a_beat_keeps_it_alive(begin: Begin, clock: FakeClock) -> None:
    ledger = begin()
    clock.elapsed += LIVE_SECONDS - 1
    ledger.beat()
    clock.elapsed += LIVE_SECONDS - 1

    with pytest.raises(DeliveryRuns):
        begin()


def test_an_event_is_a_sign_of_life_whatever_time_it_carries(begin: Begin, clock: FakeClock) -> None:
    ledger = begin()
    clock.elapsed += LIVE_SECONDS - 1
    ledger.append(slow()[0])
    clock.elapsed += LIVE_SECONDS - 1

    with pytest.raises(DeliveryRuns):
        begin()


def test_a_silent_delivery_is_closed_by_the_next_and_may_not_act_again(
    deliveries: AnyDeliveries, begin: Begin, name: str, clock: FakeClock
) -> None:
    silent = begin()
    clock.elapsed += LIVE_SECONDS + 1
    begin()

    buried = deliveries.deliveries(name)[-1]
    assert (buried.id, buried.outcome) == (silent.delivery, "interrupted")
    assert "its last sign of life was" in (buried.reason or "")
    with pytest.raises(DeliveryLost):
        silent.append(slow()[0])
    with pytest.raises(DeliveryLost):
        silent.beat()


def test_a_model_without_deliveries_has_an_empty_list(deliveries: AnyDeliveries, name: str) -> None:
    assert deliveries.deliveries(name) == []


def test_numbers_and_files_are_taken(begin: Begin, clock: FakeClock, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text("<p>")
    ledger = begin()

    ledger.measure({"eu-west-1/latency.ttft_p95_canary_seconds": 0.1}, at=clock.now())
    ledger.attach(report)


def test_the_clock_of_the_fakes_is_in_utc(clock: FakeClock) -> None:
    now: datetime = clock.now()

    assert now.utcoffset() is not None


def test_no_matter_who_carries_a_delivery_hears_with_its_next_sign_of_life_that_it_is_to_end(
    deliveries: AnyDeliveries, begin: Begin, clock: FakeClock
) -> None:
    ledger = begin()
    ledger.beat()
    asked = Event(at=clock.now(), step="delivery", kind="stop", message="asked to stop by ann")
    deliveries.join(ledger.delivery, carries=False).append(asked)
    with pytest.raises(StopAsked, match="asked to stop by ann"):
        ledger.beat()
    # It is still its own, to be taken back and closed.
    ledger.append(Event(at=clock.now(), step="undo@eu-west-1", kind="done", message="back"))
    ledger.close("interrupted", "asked to stop by ann")
