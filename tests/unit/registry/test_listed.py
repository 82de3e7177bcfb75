"""Runs that somebody else wrote where deliveries are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from fakes.delivery.store import MemoryStore

from registry.conventions import CARRIER, HEARTBEAT, MODEL, OWNER_PREFIX, VERSION, experiment_name
from registry.deliveries import MlflowDeliveries
from registry.errors import LedgerForged
from registry.model import ModelVersion
from tidegate.testing import FakeClock

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
