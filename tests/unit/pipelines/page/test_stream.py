"""Frames as a browser takes them apart."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from pipelines.views.page.routes import HEARTBEAT, RETRY, changes, frame
from pipelines.views.page.snapshot import PageParts


def parsed(stream: str) -> list[dict[str, str]]:
    """The events of a stream, by the rules of the HTML standard."""
    events: list[dict[str, str]] = []
    fields: dict[str, list[str]] = {}
    for line in re.split(r"\r\n|\n|\r", stream):
        if not line:
            events += [{name: "\n".join(values) for name, values in fields.items()}] if "data" in fields else []
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
    return events


@given(st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from("\r\n: "))))
def test_whatever_is_said_arrives_as_one_event(text: str) -> None:
    wanted = {"id": "7", "data": text.replace("\r\n", "\n").replace("\r", "\n")}
    assert parsed(RETRY + HEARTBEAT + frame(text, "7") + HEARTBEAT) == [wanted]


def test_only_what_changed_is_sent() -> None:
    picture = PageParts(parts={"news": "new", "now": "as before"}, digest="7")
    assert changes({"news": "old", "now": "as before"}, picture) == '<div id="news">new</div>'
    assert changes(picture.parts, picture) == ""
    assert changes({}, picture) == '<div id="news">new</div><div id="now">as before</div>'
