"""The report: one page that needs nothing else and says what happened."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from fakes.delivery.records import START, Delivery, bad_answers, delivered, interrupted, slow, users

from gates.evidence.request_record import RequestRecord
from pipelines.events.state import state_of
from pipelines.views.report import DeliveryRecord, render_report
from pipelines.views.report.figures import CURVE_POINTS, curve, during, per_version, quantile, side_by_side
from pipelines.views.report.timeline import strip_labels, waits
from pipelines.views.wording import headline
from registry.model import Event

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Collects what the tests ask about, and fails on tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [str(values["id"])] if "id" in values else []
        self.references += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


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


@pytest.mark.long
def test_every_delivery_has_its_headline(three: str) -> None:
    for made in (delivered, bad_answers, slow):
        assert f"<h2>{headline(state_of(made()))}</h2>" in three


def test_the_page_needs_nothing_but_itself(three: str) -> None:
    assert all(reference.startswith("#") for reference in Page(three).references)
    assert "<script" not in three
    assert "@import" not in three
    assert not re.search(r"url\((?!#)", three)


def test_ids_are_unique_and_every_reference_finds_its_own(three: str) -> None:
    page = Page(three)
    assert len(page.ids) == len(set(page.ids))
    wanted = {reference[1:] for reference in page.references} | set(re.findall(r"url\(#([^)]+)\)", three))
    assert wanted <= set(page.ids)


def test_every_tag_is_closed(three: str) -> None:
    assert Page(three).open == []


def test_the_page_stays_small(three: str) -> None:
    assert len(three) < 1_500_000


def test_figures_take_their_colours_from_the_page(three: str) -> None:
    assert "#0101" not in three
    assert "var(--canary)" in three
    assert "prefers-color-scheme: dark" in three


def test_what_others_wrote_is_escaped() -> None:
    delivery = Delivery("<b>3</b>").open().say("build", "started").say("build", "failed", "<script>alert(1)</script>")
    html = render_report([record(delivery.close("failed", "<img src=x>", 4).events, "<i>")], records=[], title="<u>")
    assert not re.search(r"<script|<img|<b>|<i>|<u>", html)
    assert "&lt;script&gt;" in html


def test_a_name_with_dollar_signs_is_a_name() -> None:
    delivery, step = Delivery().open(), "canary@$x^$/5"
    delivery.say(step, "started").traffic(step, weight=5).verdict(step, "$y^$", "fail", "worse")
    html = render_report([record(delivery.events)], records=[], title="Dollars")
    assert html.count("$x^$") > 1


@pytest.mark.long
def test_a_page_behind_others_leads_back_to_them() -> None:
    assert "<nav>" not in render_report([record(interrupted())], records=[], title="Alone")
    assert '<a href="../">' in render_report([record(interrupted())], records=[], title="Behind", back="../")


@pytest.mark.long
def test_a_single_delivery_has_no_table_of_deliveries() -> None:
    html = render_report([record(interrupted())], records=[], title="One version")
    assert 'href="#d1"' not in html
    assert "stopped by Ctrl-C" in html


def test_a_delivery_that_never_shared_users_says_so_instead_of_comparing(three: str) -> None:
    assert "Versions 2 and 3 never answered users at the same time" in three


def test_failed_and_cut_requests_are_counted() -> None:
    events = slow()
    broken = requests_of(events)[0].model_copy(update={"ok": False, "cut": True})
    html = render_report([record(events)], records=[broken, *requests_of(events)[1:]], title="Slow")
    assert re.search(r"\d+, 1 failed, 1 cut", html)


def test_a_delivery_that_still_runs_can_be_reported() -> None:
    html = render_report([record(Delivery().open().say("build", "started").events)], records=[], title="Now")
    assert "support-llm 3 is on its way" in html


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


def test_a_curve_is_thinned_and_ends_at_everything() -> None:
    values, shares = curve([float(number) for number in range(10_000)])
    assert len(values) == len(shares) == CURVE_POINTS
    assert (values[0], values[-1], shares[-1]) == (0, 9999, 1)


def test_a_curve_of_one_value_is_one_point() -> None:
    assert curve([3.0]) == ([3.0], [1.0])


def test_a_quantile_is_a_value_that_was_seen_and_of_nothing_is_an_error() -> None:
    assert quantile([float(number) for number in range(1, 101)], 0.95) == 95
    assert quantile([4.0], 0.5) == 4
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = "import sys, pipelines.views.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.long
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


def test_every_step_of_the_whole_delivery_is_named_in_the_strip() -> None:
    assert strip_labels([("build", 0.0), ("bake", 500.0), ("finalize", 800.0)], 1000.0) == [
        ("build", 0.0),
        ("bake", 500.0),
        ("finalize", 800.0),
    ]
    (build, text) = strip_labels([("build", 0.0), ("bake", 980.0), ("finalize", 999.0)], 1000.0)
    assert (build, text[0]) == (("build", 0.0), "bake, finalize")
    assert 800 < text[1] < 980


def test_names_that_do_not_fit_next_to_each_other_share_one_text_that_stays_within() -> None:
    steps = [("build", 0.0), ("bake", 2.0), ("bake", 4.0), ("finalize", 6.0)]
    assert strip_labels(steps, 1000.0) == [("build, bake, bake, finalize", 0.0)]


def test_how_long_an_approval_was_waited_for_is_drawn() -> None:
    delivery = Delivery().open().pass_through("build", 60).say("deploy@us-east-1", "waiting", approval="wave@2")
    story = state_of(delivery.say("deploy@us-east-1", "waiting", after=100, reason="holiday").events)
    assert waits(story, list(story.steps)) == [("a freeze", 60.0, 60.0)]
    delivery.say("deploy@us-east-1", "allowed", "wave@2 was approved", after=200)
    delivery.pass_through("deploy@us-east-1", 30)
    story = state_of(delivery.events)
    assert waits(story, list(story.steps)) == [("a freeze", 60.0, 360.0)]
    html = render_report([record(delivery.events), record(delivery.events, "run-2")], records=[], title="Held")
    assert html.count(">waits for a freeze<") == 2
    page = Page(html)
    assert len(page.ids) == len(set(page.ids))
    assert "#0101" not in html


def test_what_was_waited_for_in_vain_ends_with_the_delivery() -> None:
    delivery = Delivery().open().say("promote@eu-west-1", "waiting", approval="promote@eu-west-1")
    delivery.say("delivery", "closed", after=900, outcome="inconclusive", reason="nobody answered")
    story = state_of(delivery.events)
    assert waits(story, list(story.steps)) == [("promote@eu-west-1", 0.0, 900.0)]
