"""Every delivery leaves a page behind, whether or not somebody wrote down what users saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.records import bad_answers, delivered, users
from fakes.delivery.world import a_spec

from pipelines.events.listeners import EventFile
from pipelines.events.state import state_of
from pipelines.state import StateFolder
from tidegate.reports import write_report


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path / "state")


@pytest.fixture
def events(state: StateFolder) -> EventFile:
    file = EventFile(state.delivery("7") / "events.jsonl")
    for event in delivered():
        file.on_event(event)
    return file


@pytest.mark.long
def test_several_deliveries_are_one_page_in_their_order(state: StateFolder, events: EventFile, tmp_path: Path) -> None:
    second = EventFile(state.delivery("8") / "events.jsonl")
    for event in bad_answers():
        second.on_event(event)
    write_report(a_spec(), state, [("7", events), ("8", second)], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<title>support-llm: 2 deliveries</title>" in page
    assert page.index("support-llm 2 is in production") < page.index("support-llm 3 was taken back")


def test_a_delivery_has_its_page_and_what_users_saw_meanwhile_is_drawn(
    state: StateFolder, events: EventFile, tmp_path: Path
) -> None:
    write_report(a_spec(), state, [("7", events)], tmp_path / "out" / "without.html")
    page = (tmp_path / "out" / "without.html").read_text()
    assert "<title>support-llm: 1 delivery</title>" in page
    assert "support-llm 2 is in production" in page
    state.traffic.mkdir(parents=True)
    records = users(state_of(delivered()), slowness={})
    (state.traffic / "support-llm.jsonl").write_text("".join(record.model_dump_json() + "\n" for record in records))
    write_report(a_spec(), state, [("7", events)], tmp_path / "with.html")
    assert len((tmp_path / "with.html").read_text()) > len(page)
