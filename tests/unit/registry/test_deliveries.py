"""What ledgers promise, over MLflow in memory; `test_store.py` shows that MLflow keeps what that does."""

from collections.abc import Callable

import pytest
from fakes.clock import sleep_of
from fakes.delivery.records import slow
from fakes.delivery.store import MemoryStore

from registry.deliveries import LIVE_SECONDS, MlflowDeliveries
from registry.errors import DeliveryLost, DeliveryRuns, StopAsked
from registry.ledger import MlflowLedger
from registry.model import Event, ModelVersion
from tidegate.testing import FakeClock

NAME = "support-llm"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def deliveries(clock: FakeClock) -> MlflowDeliveries:
    return MlflowDeliveries(MemoryStore(), clock, sleep=sleep_of(clock))


def version(name: str, number: str = "2") -> ModelVersion:
    return ModelVersion(name=name, version=number, digest="d" * 64, files={}, size_bytes=0)


@pytest.fixture
def begin(deliveries: MlflowDeliveries) -> Callable[[], MlflowLedger]:
    return lambda: deliveries.open_delivery(version(NAME), version(NAME, "1"), spec_digest="s")


Begin = Callable[[], MlflowLedger]


def test_an_open_delivery_is_listed_as_running(deliveries: MlflowDeliveries, begin: Begin) -> None:
    ledger = begin()
    ledger.append(slow()[1])

    [summary] = deliveries.deliveries(NAME)
    assert (summary.id, summary.name, summary.version, summary.champion) == (ledger.delivery, NAME, "2", "1")
    assert (summary.ended, summary.outcome, summary.last_step) == (None, None, "build")
    assert deliveries.is_alive(summary)


@pytest.mark.parametrize("outcome", ["delivered", "rolled-back", "inconclusive", "interrupted", "failed"])
def test_a_closed_delivery_says_how_and_why(
    deliveries: MlflowDeliveries, begin: Begin, clock: FakeClock, outcome: str
) -> None:
    ledger = begin()
    clock.elapsed += 30
    ledger.close(outcome, "because")

    [summary] = deliveries.deliveries(NAME)
    assert (summary.outcome, summary.reason, summary.ended) == (outcome, "because", clock.now())
    assert not deliveries.is_alive(summary)


def test_two_deliveries_of_one_model_never_run_at_once(deliveries: MlflowDeliveries, begin: Begin) -> None:
    first = begin()

    with pytest.raises(DeliveryRuns, match=f"delivery {first.delivery} of {NAME} runs"):
        begin()
    assert [summary.id for summary in deliveries.deliveries(NAME)] == [first.delivery]
    deliveries.open_delivery(version(f"{NAME}-other"), None, spec_digest="s")


def test_after_one_ended_the_next_may_begin(deliveries: MlflowDeliveries, begin: Begin, clock: FakeClock) -> None:
    first = begin()
    first.close("rolled-back", "too slow")
    clock.elapsed += 1
    second = begin()

    assert [summary.id for summary in deliveries.deliveries(NAME)] == [second.delivery, first.delivery]
    assert [summary.id for summary in deliveries.deliveries(NAME, last=1)] == [second.delivery]


@pytest.mark.parametrize("sign", [MlflowLedger.beat, lambda ledger: ledger.append(slow()[0])], ids=["beat", "event"])
def test_a_beat_and_an_event_keep_it_alive(
    begin: Begin, clock: FakeClock, sign: Callable[[MlflowLedger], object]
) -> None:
    ledger = begin()
    clock.elapsed += LIVE_SECONDS - 1
    sign(ledger)
    clock.elapsed += LIVE_SECONDS - 1
    with pytest.raises(DeliveryRuns):
        begin()


def test_a_silent_delivery_is_closed_by_the_next_and_may_not_act_again(
    deliveries: MlflowDeliveries, begin: Begin, clock: FakeClock
) -> None:
    silent = begin()
    clock.elapsed += LIVE_SECONDS + 1
    begin()

    buried = deliveries.deliveries(NAME)[-1]
    assert (buried.id, buried.outcome) == (silent.delivery, "interrupted")
    assert "its last sign of life was" in (buried.reason or "")
    with pytest.raises(DeliveryLost):
        silent.append(slow()[0])
    with pytest.raises(DeliveryLost):
        silent.beat()


def test_no_matter_who_carries_a_delivery_hears_with_its_next_sign_of_life_that_it_is_to_end(
    deliveries: MlflowDeliveries, begin: Begin, clock: FakeClock
) -> None:
    ledger = begin()
    ledger.beat()
    asked = Event(at=clock.now(), step="delivery", kind="stop", message="asked to stop by ann")
    deliveries.join(ledger.delivery, carries=False).append(asked)
    with pytest.raises(StopAsked, match="asked to stop by ann"):
        ledger.beat()
    # It is still its own, to be rolled back and closed.
    ledger.append(Event(at=clock.now(), step="undo@eu-west-1", kind="done", message="back"))
    ledger.close("interrupted", "asked to stop by ann")
