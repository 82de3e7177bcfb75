"""`tidegate notify` shows and tries what a spec notifies; an address is never printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes.delivery.world import GOLDEN, SPEC

from pipelines.views.notifications import Body, NotTaken
from tidegate.cli.commands.notify import try_notifications
from tidegate.cli.output import Output
from tidegate.core.errors import UsageError

NOTIFY = """notify:
- slack: {url_from_env: TIDEGATE_SPEC_CHAT}
- {webhook: {url_from_env: TIDEGATE_SPEC_HOOK}, about: [closed]}
"""
SET = {
    "TIDEGATE_SPEC_CHAT": "https://hooks.example/chat-secret",
    "TIDEGATE_SPEC_HOOK": "https://hooks.example/hook-secret",
}
ONLY_CHAT = {"TIDEGATE_SPEC_CHAT": SET["TIDEGATE_SPEC_CHAT"]}


class Receiver:
    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.taken: dict[str, Mapping[str, object]] = {}

    def send(self, url: str, body: Body) -> None:
        if url == self.refuses:
            raise NotTaken("answered 404", again=False)
        self.taken[url] = body


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "golden.jsonl").write_text(GOLDEN)
    path = tmp_path / "delivery.yaml"
    path.write_text(SPEC + NOTIFY)
    return path


def test_a_dry_run_shows_every_message_and_sends_none(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    receiver = Receiver()
    assert try_notifications(spec, dry_run=True, output=Output.JSON, sender=receiver, environment=ONLY_CHAT) == 0
    out = capsys.readouterr().out
    told = [(each["to"], each["url_from_env"], each["set"], each["about"]) for each in json.loads(out)]
    assert told == [
        *[
            ("slack", "TIDEGATE_SPEC_CHAT", True, about)
            for about in ("opened", "freeze", "approval", "stopped", "left", "closed")
        ],
        ("webhook", "TIDEGATE_SPEC_HOOK", False, "closed"),
    ]
    assert receiver.taken == {}
    assert "secret" not in out


def test_a_dry_run_can_be_read_too(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert try_notifications(spec, dry_run=True, output=Output.TEXT, environment={}) == 0
    assert "webhook at $TIDEGATE_SPEC_HOOK, which is not set: closed\n" in capsys.readouterr().out


def test_everyone_gets_one_test_message(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    receiver = Receiver()
    assert try_notifications(spec, dry_run=False, output=Output.TEXT, sender=receiver, environment=SET) == 0
    assert capsys.readouterr() == ("slack at $TIDEGATE_SPEC_CHAT: taken\nwebhook at $TIDEGATE_SPEC_HOOK: taken\n", "")
    assert receiver.taken[SET["TIDEGATE_SPEC_HOOK"]]["kind"] == "test"


def test_who_does_not_take_it_is_named_and_the_others_get_theirs(
    capsys: pytest.CaptureFixture[str], spec: Path
) -> None:
    receiver = Receiver(refuses=SET["TIDEGATE_SPEC_CHAT"])
    assert try_notifications(spec, dry_run=False, output=Output.TEXT, sender=receiver, environment=SET) == 4
    assert (
        capsys.readouterr().out == "slack at $TIDEGATE_SPEC_CHAT: answered 404\nwebhook at $TIDEGATE_SPEC_HOOK: taken\n"
    )


def test_a_variable_that_is_missing_is_named_before_anything_is_sent(spec: Path) -> None:
    receiver = Receiver()
    with pytest.raises(UsageError, match="not set: TIDEGATE_SPEC_HOOK"):
        try_notifications(spec, dry_run=False, output=Output.TEXT, sender=receiver, environment=ONLY_CHAT)
    assert receiver.taken == {}


def test_a_spec_that_tells_nobody_says_how(spec: Path) -> None:
    spec.write_text(SPEC)
    with pytest.raises(UsageError, match="configures no notifications"):
        try_notifications(spec, dry_run=True, output=Output.TEXT)
