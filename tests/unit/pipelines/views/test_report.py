"""The report: one page that needs nothing else and says what happened."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from fakes.delivery.records import REGIONS, START, Delivery, bad_answers, delivered, slow, users
from fakes.html import Read
from hypothesis import given
from hypothesis import strategies as st

from gates.evidence.request_record import RequestRecord
from pipelines.events.state import state_of
from pipelines.views.report import DeliveryRecord, during, per_version, render_report, side_by_side
from pipelines.views.section import LEFT, RIGHT, TITLE, WEIGHTS, timeline, waits
from pipelines.views.wording import headline
from registry.model import Event


def record(events: list[Event], name: str = "run-1") -> DeliveryRecord:
    return DeliveryRecord(id=name, events=tuple(events))


def requests_of(events: list[Event]) -> list[RequestRecord]:
    return users(state_of(events), slowness={"4": 2.6})


@pytest.fixture(scope="module")
def three() -> str:
    """Three deliveries in a row on one page, as a demo makes them."""
    deliveries, records, start = [], [], START
    for number, made in enumerate((delivered, bad_answers, slow)):
        events = made(start=start)
        deliveries.append(record(events, f"run-{number}"))
        records += requests_of(events)
        start = events[-1].at + timedelta(seconds=20)
    return render_report(deliveries, records=records, title="Three versions")


def test_every_delivery_has_its_headline(three: str) -> None:
    for made in (delivered, bad_answers, slow):
        assert f"<h2>{headline(state_of(made()))}</h2>" in three


def test_the_page_needs_nothing_but_itself_and_stays_small(three: str) -> None:
    page = Read(three)
    assert all(reference.startswith("#") for reference in page.references)
    assert len(page.ids) == len(set(page.ids))
    assert {reference[1:] for reference in page.references} <= set(page.ids)
    assert not {"script", "img", "link"} & set(page.tags)
    assert not re.search(r"@import|url\(", three)
    assert len(three) < 300_000


def test_what_others_wrote_is_escaped() -> None:
    delivery = Delivery("<b>3</b>").open().say("build", "started").say("build", "failed", "<script>alert(1)</script>")
    html = render_report([record(delivery.close("failed", "<img src=x>", 4).events, "<i>")], records=[], title="<u>")
    assert not re.search(r"<script|<img|<b>|<i>|<u>", html)
    assert "&lt;script&gt;" in html


def test_a_delivery_that_never_shared_users_says_so_instead_of_comparing(three: str) -> None:
    assert "Versions 2 and 3 never answered users at the same time" in three


def test_failed_and_cut_requests_are_counted() -> None:
    events = slow()
    broken = requests_of(events)[0].model_copy(update={"ok": False, "cut": True})
    html = render_report([record(events)], records=[broken, *requests_of(events)[1:]], title="Slow")
    assert re.search(r"\d+, 1 failed, 1 cut", html)


def test_requests_before_and_after_the_delivery_and_elsewhere_do_not_belong_to_it() -> None:
    events = slow()
    story = state_of(events)
    inside = requests_of(events)[0]
    early = inside.model_copy(update={"started": inside.started - 1})
    elsewhere = inside.model_copy(update={"region": "mars"})
    assert during(story, [early, inside, elsewhere]) == [inside]


def test_arms_are_compared_only_where_and_while_both_had_users() -> None:
    events = slow()
    story = state_of(events)
    stable, canary = side_by_side(story, during(story, requests_of(events)))
    assert (stable.version, canary.version, canary.canary) == ("2", "4", True)
    assert {each.region for each in stable.records} == {"eu-west-1"}
    shared = story.regions[0].history
    began = next(change.at for change in shared if change.weight == 25)
    assert min(each.started for each in stable.records) >= began.timestamp()


def test_requests_without_an_answer_are_an_arm_of_their_own() -> None:
    events = slow()
    lost = requests_of(events)[0].model_copy(update={"version": "", "ok": False})
    arms = per_version(state_of(events), [lost, *requests_of(events)[1:]])
    assert [(arm.version, arm.failed) for arm in arms] == [("2", 0), ("", 1), ("4", 0)]


def test_a_verdict_of_the_whole_wave_is_on_the_page() -> None:
    delivery = Delivery().open().say("bake@1", "started")
    delivery.say("bake@1", "verdict", gate="errors", outcome="pass", reason="quiet", numbers={}, region=None)
    html = render_report([record(delivery.events)], records=[], title="Bake")
    assert "<code>bake@1</code>" in html
    assert "quiet" in html


def test_a_delivery_that_died_before_its_first_event_is_still_on_the_page() -> None:
    html = render_report([record([], "run-9")], records=[], title="Nothing")
    assert "nothing was recorded of this delivery" in html
    assert "run-9" in html


def test_how_long_an_approval_was_waited_for_is_drawn() -> None:
    delivery = Delivery().open().pass_through("build", 60).say("deploy@us-east-1", "waiting", approval="wave@2")
    story = state_of(delivery.say("deploy@us-east-1", "waiting", after=100, reason="holiday").events)
    assert list(waits(story, story.steps)) == [("a freeze", 60.0, 60.0)]
    delivery.say("deploy@us-east-1", "allowed", "wave@2 was approved", after=200)
    delivery.pass_through("deploy@us-east-1", 30)
    story = state_of(delivery.events)
    assert list(waits(story, story.steps)) == [("a freeze", 60.0, 360.0)]
    html = render_report([record(delivery.events), record(delivery.events, "run-2")], records=[], title="Held")
    # Above its place, and on its shade.
    assert html.count(">waits for a freeze<") == 4


def test_what_was_waited_for_in_vain_ends_with_the_delivery() -> None:
    delivery = Delivery().open().say("promote@eu-west-1", "waiting", approval="promote@eu-west-1")
    delivery.say("delivery", "closed", after=900, outcome="inconclusive", reason="nobody answered")
    story = state_of(delivery.events)
    assert list(waits(story, story.steps)) == [("promote@eu-west-1", 0.0, 900.0)]


def rows_of(*weights: tuple[float, int, int]) -> dict[str, str]:
    """The paths of a region: weight and mirror after so many seconds each, known of for 10 s more."""
    step = f"canary@{REGIONS[0]}/25"
    delivery = Delivery("3", champion="2").open().say(step, "started")
    for after, weight, mirror in weights:
        delivery.say(step, "traffic", after=after, region=REGIONS[0], weight=weight, mirror=mirror)
    return timeline(state_of(delivery.say(step, "done", after=10).events))["rows"][1]


def test_weights_are_steps_that_hold_until_the_next_and_a_mirror_is_drawn_while_there_is_one() -> None:
    row = rows_of((10, 0, 100), (20, 50, 0))
    assert row["users"] == "M104 114H325.5V114H768.5V74H990"
    assert row["below"] == "M104 114H325.5V114H768.5V74H990V114H104Z"
    assert row["mirrored"] == "M325.5 34H768.5"
    assert row["label"] == "Users of eu-west-1 on version 3: 0% and 100% mirrored from 0:10, 50% from 0:30"
    assert rows_of()["label"].endswith(": none")


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 100), st.integers(0, 100)), max_size=9))
def test_nothing_is_drawn_outside_of_its_frame(weights: list[tuple[float, int, int]]) -> None:
    row = rows_of(*weights)
    assert all(LEFT <= float(each) <= RIGHT for each in re.findall(r"H([-\d.]+)", row["users"]))
    assert all(TITLE <= float(each) <= TITLE + WEIGHTS for each in re.findall(r"V([-\d.]+)", row["users"]))
