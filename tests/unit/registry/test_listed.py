"""Deliveries as lists and people name them: whole ids, and runs that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from fakes.delivery.store import MemoryStore

from registry.conventions import CARRIER, HEARTBEAT, MODEL, OWNER_PREFIX, VERSION, experiment_name
from registry.deliveries import MlflowDeliveries
from registry.errors import LedgerForged, UnknownDelivery
from registry.model import ModelVersion
from tidegate.core.errors import UsageError
from tidegate.testing import FakeClock

ONE, TWO = f"{1:032x}", f"{2:032x}"


@pytest.fixture
def deliveries() -> MlflowDeliveries:
    """Of two models: 000...01 and 000...02."""
    found = MlflowDeliveries(MemoryStore(), FakeClock())
    for name in ("chat", "code"):
        found.open_delivery(
            ModelVersion(name=name, version="2", digest="d" * 64, files={}, size_bytes=0), None, spec_digest="s"
        )
    return found


@pytest.mark.parametrize("given", [ONE, "0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f"])
def test_an_id_is_taken_as_it_is_and_the_beginning_of_one_is_found(deliveries: MlflowDeliveries, given: str) -> None:
    assert deliveries.whole_id(given) == given


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("0" * 8, UsageError, f"delivery: found 00000000, with which 2 ids begin; expected one of {ONE}, {TWO}"),
        ("0" * 7, UnknownDelivery, "there is no delivery 0000000"),
        ("9" * 9, UnknownDelivery, "there is no delivery 999999999"),
        ("a%' OR 1", UnknownDelivery, "there is no delivery a%' OR 1"),
    ],
)
def test_what_is_no_one_delivery_is_refused(
    deliveries: MlflowDeliveries, given: str, error: type[UsageError], message: str
) -> None:
    with pytest.raises(error) as refused:
        deliveries.whole_id(given)
    assert (type(refused.value), refused.value.message) == (error, message)


NAME = "support-llm"
DELIVERED = ModelVersion(name=NAME, version="2", digest="d" * 64, files={}, size_bytes=0)


def carrier(**other: object) -> str:
    said = {"mark": "m", "at": "2026-01-01T00:00:00Z", "host": "ci", "pid": 1, "machine": ""}
    return json.dumps(said | other)


WHOLE = {MODEL: NAME, VERSION: "3", CARRIER: carrier(), HEARTBEAT: "2026-01-01T00:00:00+00:00"}
OWNER = f"{OWNER_PREFIX}0001"
BAD: tuple[Mapping[str, str | None], ...] = (
    {VERSION: None, CARRIER: None, HEARTBEAT: None},
    {VERSION: None},
    {CARRIER: None},
    {CARRIER: carrier(pid="1; rm -rf /")},
    {CARRIER: carrier(pid=-1)},
    {CARRIER: carrier(pid=10**4000)},
    {CARRIER: carrier(patience_seconds=-1)},
    {CARRIER: carrier(patience_seconds="a\n::error::b")},
    {CARRIER: "[" * 100_000},
    {HEARTBEAT: "yesterday"},
    {HEARTBEAT: "2026-01-01T00:00:00"},
    {HEARTBEAT: "99999-01-01T00:00:00+00:00"},
    {OWNER: "not JSON"},
    {OWNER: '{"mark": 7}'},
)


@pytest.mark.parametrize("tags", BAD, ids=lambda tags: ",".join(f"{key}={str(tags[key])[:20]}" for key in tags))
def test_it_is_told_once_and_hides_nothing(tags: Mapping[str, str | None], caplog: pytest.LogCaptureFixture) -> None:
    store, clock = MemoryStore(), FakeClock()
    deliveries = MlflowDeliveries(store, clock)
    mine = deliveries.open_delivery(DELIVERED, None, spec_digest="s")
    written = {key: value for key, value in (WHOLE | dict(tags)).items() if value is not None}
    params = {OWNER: written[OWNER]} if OWNER in written else {}
    started = round(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000)
    theirs = store.create_run(experiment_name(NAME), name="x", started=started, tags=written, params=params)
    for last in (None, 1):
        assert [each.id for each in deliveries.deliveries(NAME, last=last)] == [mine.delivery]
    mine.close("delivered", "all regions")
    deliveries.refuse_live(NAME)
    assert deliveries.open_delivery(DELIVERED, None, spec_digest="s").delivery
    (line,) = {record.getMessage() for record in caplog.records}
    assert f"run {theirs.id} cannot be read as a delivery" in line and "\n" not in line and len(line) < 400
    with pytest.raises(LedgerForged, match="cannot be read as a delivery"):
        deliveries.summary(theirs.id)
