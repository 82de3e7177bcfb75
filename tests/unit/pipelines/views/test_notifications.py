"""What people are told of a delivery: six things, each in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.records import START
from fakes.delivery.world import CHALLENGER_URL, World, a_spec

from pipelines.views.notifications import (
    LONGEST,
    DeliverySubject,
    Notification,
    NotificationKind,
    notification_of,
    slack_body,
    subject_of,
    webhook_body,
)
from registry.model import Event
from tidegate.core.spec import SpecError

SUBJECT = DeliverySubject(delivery="0f3c", model="support-llm", version="7", champion="6", regions=("eu-west-1",))


async def told(world: World) -> list[Notification]:
    subject = subject_of(world.plan, world.ledger.delivery)
    await world.deliver()
    return [news for event in world.recorder.events if (news := notification_of(event, subject))]


async def test_of_a_healthy_version_people_hear_twice(tmp_path: Path) -> None:
    opened, closed = await told(World(tmp_path))
    assert (opened.kind, opened.headline) == (
        NotificationKind.OPENED,
        "support-llm 2 is on its way to eu-west-1, us-east-1",
    )
    assert (closed.kind, closed.headline, closed.outcome) == (
        NotificationKind.CLOSED,
        "support-llm 2 is in production",
        "delivered",
    )


async def test_a_verdict_is_told_when_it_is_given_and_again_when_all_is_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: "fast and wrong"
    _, stopped, closed = await told(world)
    assert (stopped.kind, stopped.step, stopped.outcome) == (
        NotificationKind.STOPPED,
        "offline@eu-west-1",
        "rolled-back",
    )
    assert stopped.headline == "support-llm 2 is stopped in offline@eu-west-1"
    assert stopped.text.startswith("gate quality: canary scores 0.00 against 1.00")
    assert (closed.kind, closed.headline) == (NotificationKind.CLOSED, "support-llm 2 was taken back")


async def test_no_matter_who_may_approve_is_told_how(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        a_spec(traffic="approvals: [{before: finalize, within: 30s, by: names}]\ntraffic: {requests_per_second: 200}"),
    )
    asked = [news for news in await told(world) if news.kind is NotificationKind.APPROVAL]
    assert [news.headline for news in asked] == ["support-llm 2 waits for an approval of finalize"]
    assert asked[0].text.startswith(f"`tidegate approve {world.ledger.delivery} finalize --by NAME`")


async def test_a_freeze_is_told_with_its_end_its_reason_and_the_way_around_it(tmp_path: Path) -> None:
    year = "from: 2026-01-01, to: 2026-01-01 02:00, timezone: Europe/Berlin, reason: new year"
    freeze = f"freeze: [{{{year}, lift: names}}]"
    world = World(tmp_path, a_spec(traffic=f"{freeze}\ntraffic: {{requests_per_second: 200}}"))
    held = [news for news in await told(world) if news.kind is NotificationKind.FREEZE]
    headline = "support-llm 2 waits until 2026-01-01 02:00 CET: frozen: new year"
    assert [(news.step, news.headline) for news in held] == [("deploy@eu-west-1", headline)]
    assert held[0].text.startswith(f"`tidegate approve {world.ledger.delivery} freeze --by NAME`")


@pytest.mark.parametrize(
    "event",
    [
        Event(at=START, step="undo@eu-west-1", kind="failed", message="not there", data={}),
        Event(at=START, step="build", kind="failed", message="no registry", data={"ending": "failed"}),
        Event(
            at=START, step="deploy@eu-west-1", kind="waiting", message="for what a newer tidegate waits for", data={}
        ),
        Event(at=START, step="build", kind="started", message=""),
        Event(at=START, step="delivery", kind="evidence", message="carried on"),
    ],
)
def test_everything_else_is_for_the_report(event: Event) -> None:
    assert notification_of(event, SUBJECT) is None


def test_what_a_gate_quotes_is_no_link_and_no_mention_in_chat() -> None:
    news = Notification(
        kind=NotificationKind.CLOSED,
        at=START,
        subject=SUBJECT,
        headline="a & b",
        text="<!channel> " + "x" * 2 * LONGEST,
    )
    text = str(slack_body(news)["text"])
    assert text.startswith("*a &amp; b*\n&lt;!channel&gt; xxx")
    assert text.endswith("x…\n_delivery 0f3c_")
    assert len(text) < LONGEST + 100


def test_a_chat_is_told_what_the_ledger_can_be_held_to() -> None:
    news = Notification(
        kind=NotificationKind.CLOSED, at=START, subject=SUBJECT, headline="over", heads=("9f86d0", "60303a")
    )
    assert slack_body(news)["text"] == "*over*\n_delivery 0f3c, ledger 9f86d0, 60303a_"


def test_a_program_gets_everything_flat() -> None:
    opened = Notification(kind=NotificationKind.OPENED, at=START, subject=SUBJECT, headline="")
    assert set(webhook_body(opened)) == {
        "kind", "at", "headline", "text", "step", "outcome", "delivery", "model", "version", "champion", "regions",
        "heads",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{slack: {url_from_env: 'https://hooks.example/T0/secret'}}", "expected url_from_env: NAME"),
        ("{slack: {url: 'https://hooks.example/T0/secret'}}", "expected url_from_env: NAME"),
        ("{webhook: 'https://hooks.example/T0/secret'}", "expected url_from_env: NAME"),
        ("{about: [closed]}", "exactly one of webhook, slack"),
        ("{slack: {url_from_env: A}, webhook: {url_from_env: B}}", "exactly one of webhook, slack"),
        ("{slack: {url_from_env: A}, about: []}", "about"),
    ],
)
def test_an_address_in_the_spec_is_refused(entry: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem) as caught:
        a_spec(traffic=f"notify: [{entry}]")
    assert "secret" not in str(caught.value)
