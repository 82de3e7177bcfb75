from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from engine_images.arguments.pinned import Option, OptionKind
from engine_images.arguments.values import complaint, read_count


@pytest.mark.parametrize(
    ("written", "count"),
    [(0, 0), (8192, 8192), ("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5m", 1_500_000), ("1G", 1024**3)],
)
def test_counts_are_read_as_vllm_reads_them(written: JsonValue, count: int) -> None:
    assert read_count(written) == count


@pytest.mark.parametrize("written", [-1, True, 1.5, "1.5K", "8 k", "k", "", None, [1]])
def test_what_vllm_would_not_read_as_a_count_is_none(written: JsonValue) -> None:
    assert read_count(written) is None


@given(st.integers(min_value=0, max_value=10**15))
def test_a_plain_number_is_itself_in_both_spellings(number: int) -> None:
    assert read_count(number) == read_count(str(number)) == number


GOOD: list[tuple[Option, JsonValue]] = [
    (Option(), "text"),
    (Option(), 7),
    (Option(kind=OptionKind.FLAG, negatable=True), False),
    (Option(kind=OptionKind.FLAG), True),
    (Option(kind=OptionKind.INTEGER), 3),
    (Option(kind=OptionKind.INTEGER, choices=(8, 16)), 16),
    (Option(kind=OptionKind.LENGTH), "auto"),
    (Option(kind=OptionKind.NUMBER), 0.5),
    (Option(kind=OptionKind.NUMBER), 1),
    (Option(kind=OptionKind.JSON), ["*"]),
    (Option(kind=OptionKind.OBJECT, fields=("mode",)), {"mode": 3}),
    (Option(kind=OptionKind.TEXT_OR_JSON), {"a": 1}),
    (Option(kind=OptionKind.TEXT_OR_FLAG), True),
    (Option(many=True), ["a", "b"]),
    (Option(many=True), "a"),
]

BAD: list[tuple[Option, JsonValue, str]] = [
    (Option(), True, "text"),
    (Option(), ["a"], "text"),
    (Option(), None, "text"),
    (Option(kind=OptionKind.FLAG, negatable=True), 1, "true or false"),
    (Option(kind=OptionKind.FLAG), False, "true, or nothing at all: vLLM cannot be told the opposite"),
    (Option(kind=OptionKind.INTEGER), True, "a whole number"),
    (Option(kind=OptionKind.INTEGER), 1.5, "a whole number"),
    (Option(kind=OptionKind.INTEGER), "3", "a whole number"),
    (Option(kind=OptionKind.INTEGER, choices=(8, 16)), 9, "one of 8, 16"),
    (Option(choices=("fcfs", "priority")), "fcfz", "fcfs (the nearest choice)"),
    (Option(kind=OptionKind.NUMBER), "0.5", "a number"),
    (Option(kind=OptionKind.OBJECT), '{"mode": 3}', "a mapping"),
    (
        Option(kind=OptionKind.OBJECT, fields=("mode",)),
        {"mod": 3},
        "only keys that vLLM knows: mod is none, did you mean mode?",
    ),
    (Option(many=True), ["a", 1.5, True], "a list of: text"),
    (Option(many=True), ["a", "--port=1"], "a list of: no text that begins with a dash"),
]


@pytest.mark.parametrize(("option", "value"), GOOD)
def test_an_option_takes_what_it_is_for(option: Option, value: JsonValue) -> None:
    assert complaint(option, value) is None


@pytest.mark.parametrize(("option", "value", "expected"), BAD)
def test_an_option_says_what_it_would_take_instead(option: Option, value: JsonValue, expected: str) -> None:
    assert complaint(option, value) == expected
