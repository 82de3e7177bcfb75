"""Options that are durations."""

from __future__ import annotations

from datetime import timedelta

import pytest
import typer

from tidegate.cli.options import Duration, duration


@pytest.mark.parametrize(
    ("text", "meant"), [("0s", timedelta()), ("90s", timedelta(seconds=90)), ("1h30m", timedelta(minutes=90))]
)
def test_a_text_is_read(text: str, meant: timedelta) -> None:
    assert duration(text) == meant


def test_a_default_is_taken_as_it_is_and_shown_as_a_person_writes_it() -> None:
    assert duration(Duration(minutes=30)) == timedelta(minutes=30)
    assert [str(each) for each in (Duration(), Duration(seconds=30), Duration(minutes=60))] == ["0s", "30s", "1h"]


def test_what_is_none_is_refused_with_what_would_be_one() -> None:
    with pytest.raises(typer.BadParameter, match=r"found 'soon'; expected a duration such as 250ms, 30s"):
        duration("soon")
