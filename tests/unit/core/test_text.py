"""Words of others steer neither a terminal nor a CI system."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.text import lines_of, one_line, printable


def test_escapes_titles_and_turned_writing_are_left_out() -> None:
    assert printable("a\x1b]0;owned\x07b\x1b[2J\x9b31mc\u202ed\te\n") == "a]0;ownedb[2J31mcd\te\n"


def test_a_line_stays_a_line() -> None:
    assert one_line("failed\n::add-mask::x\r\u2028y") == "failed ::add-mask::x y"


def test_lines_end_where_files_end_them_and_nowhere_else() -> None:
    assert lines_of("") == []
    assert lines_of("a\r\n\nb\u2028c\x85d\x0ce") == ["a", "", "b\u2028c\x85d\x0ce"]
    assert lines_of("a\n") == ["a"]


@pytest.mark.parametrize("text", ["::error::x", "a\n \t::debug::x", "a ##[error]x", "##vso[task.x]", "##teamcity[x]"])
def test_no_line_is_a_command_of_a_ci_system(text: str) -> None:
    assert not re.search(r"^\s*::|##\w*\[", printable(text), re.MULTILINE)
    assert printable(text).replace(" ", "") == text.replace(" ", "")


@given(st.text())
def test_what_is_left_has_no_control_character(text: str) -> None:
    assert all(character.isprintable() or character in "\t\n" or ord(character) > 0x9F for character in printable(text))


@given(st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters=":#")))
def test_plain_words_stay_as_they_are(text: str) -> None:
    assert printable(text) == text
