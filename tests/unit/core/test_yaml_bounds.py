"""A spec of a few bytes cannot keep a command busy: what aliases come to is counted before it is walked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core.model import SpecModel
from tidegate.core.spec import SpecError, load_spec, parse_spec
from tidegate.core.yaml_text import Unclear, all_composed, content_of

BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 11)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 11)
)


class Ship(SpecModel):
    name: str = "north"
    twin: str = "north"


@pytest.mark.parametrize("text", [BOMB, MERGES])
def test_aliases_of_aliases_are_refused_before_they_are_followed(text: str) -> None:
    with pytest.raises(SpecError, match=r"ship\.yaml:1: found aliases of aliases; expected at most 200,000 values"):
        parse_spec(text, Ship, file="ship.yaml")


def test_an_alias_within_itself_is_refused() -> None:
    with pytest.raises(SpecError, match="an alias within what it stands for"):
        parse_spec("name: &a [*a]\n", Ship, file="ship.yaml")


@pytest.mark.parametrize("text", ["[" * 3000, "- " * 3000 + "x", "{a: " * 150 + "x" + "}" * 150])
def test_what_is_nested_too_deeply_is_one_clear_line(text: str) -> None:
    with pytest.raises(SpecError, match=r"expected (at most 100 levels|valid YAML)"):
        parse_spec(text, Ship, file="ship.yaml")


def test_an_anchor_that_saves_writing_is_no_crime() -> None:
    assert parse_spec("name: &n south\ntwin: *n\n", Ship, file="ship.yaml") == Ship(name="south", twin="south")


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(SpecError, match=r"found a larger file; expected at most 512 KiB"):
        load_spec(Path("/dev/zero"), Ship)


def test_what_is_quoted_is_short_and_holds_no_password() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec("name: [https://ci:hunter2@host/, " + "x" * 500 + "]\n", Ship, file="ship.yaml")
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("22:00", "22:00"), ("9:30:15", "9:30:15"), ("1:30.5", "1:30.5"), ("2026-02-30", "2026-02-30"),
        ("no", "no"), ("Yes", "Yes"), ("on", "on"), ("OFF", "OFF"), ("y", "y"), ("true", True), ("False", False),
        ("010", "010"), ("08", "08"), ("0o10", 8), ("0x1f", 31), ("1_000", "1_000"), ("12e5", "12e5"), ("-7", -7),
        ("0", 0), ("0.5", 0.5), ("-.5", -0.5), ("1.", 1.0), ("1.5e+3", 1500.0), ("10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "0.0.0.0"), ("~", None), (".inf", float("inf")), ("'no'", "no"),
    ],
)  # fmt: skip
def test_a_plain_scalar_is_what_yaml_1_2_says(written: str, said: object) -> None:
    (root,) = all_composed(written)
    found = content_of(root)
    assert (found, isinstance(found, type(said))) == (said, True)
    quoted = written.startswith("'")
    assert isinstance(found, Unclear) == (not quoted and written in UNCLEAR)


UNCLEAR = {"no", "Yes", "on", "OFF", "y", "010", "08", "1_000", "12e5"}
