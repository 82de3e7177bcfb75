"""Every delivery leaves a page behind, whether or not somebody wrote down what users saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.records import delivered, users
from fakes.delivery.world import a_spec

from pipelines.events.listeners import EventFile
from pipelines.events.state import state_of
from pipelines.state import StateFolder
from tidegate.standing import page_of


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path / "state")


@pytest.fixture
def events(state: StateFolder) -> EventFile:
    file = EventFile(state.delivery("7") / "events.jsonl")
    for event in delivered():
        file.on_event(event)
    return file


def test_a_delivery_has_its_page_and_what_users_saw_meanwhile_is_drawn(state: StateFolder, events: EventFile) -> None:
    page = page_of(a_spec(), state, {"7": tuple(events.read())})
    assert "<title>support-llm: 1 delivery</title>" in page
    assert "support-llm 2 is in production" in page
    state.traffic.mkdir(parents=True)
    records = users(state_of(delivered()), slowness={})
    (state.traffic / "support-llm.jsonl").write_text("".join(record.model_dump_json() + "\n" for record in records))
    assert len(page_of(a_spec(), state, {"7": tuple(events.read())})) > len(page)
