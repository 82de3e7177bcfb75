"""A wrong spec is told with file, line, path, what was found and what would be right: all problems at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from tidegate.core.errors import ExitCode
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.spec import MOST_PROBLEMS, SpecError, load_spec, parse_spec
from tidegate.core.units import Duration, Percent


class Harbour(SpecModel):
    depth: int = Field(ge=1)
    berths: tuple[str, ...] = ()


class Crew(SpecModel):
    names: tuple[Annotated[str, Field(pattern="^[a-z]+$")], ...] = Field(default=("anna",), min_length=1)


class Voyage(SpecModel):
    name: str
    crew: Crew = Crew()
    wait: Duration = timedelta(seconds=5)
    load: Percent = Field(default=0.5, validate_default=False)
    harbours: tuple[Harbour, ...] = ()

    def contradictions(self) -> Iterator[SpecConflict]:
        for index, harbour in enumerate(self.harbours):
            if harbour.depth > 100:
                yield SpecConflict(("harbours", index, "depth"), f"{harbour.depth}", "a depth that ships have")


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, Voyage, file="voyage.yaml")
    assert caught.value.exit_code is ExitCode.USAGE
    return [str(problem) for problem in caught.value.problems]


def test_a_right_spec_is_read_with_its_units() -> None:
    spec = parse_spec("name: north\nwait: 250ms\nload: 20%\n", Voyage, file="voyage.yaml")
    assert (spec.name, spec.wait, spec.load) == ("north", timedelta(milliseconds=250), 0.2)


def test_keys_that_begin_with_x_are_a_persons_own() -> None:
    text = "x-deep: &deep {depth: 3, x-by: anna}\nname: north\nharbours: [*deep, *deep]\n"
    plain = "name: north\nharbours: [{depth: 3}, {depth: 3}]\n"
    assert parse_spec(text, Voyage, file="voyage.yaml") == parse_spec(plain, Voyage, file="voyage.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: north\nweit: 5s\n", "2: weit: found an unknown key; expected wait (the nearest known key)"),
        ("name: n\n'': 1\n", "2: found an unknown key; expected one of name, crew, wait, load, harbours"),
        (
            "name: n\nharbours:\n  - depth: 3\n    zzz: 1\n",
            "4: harbours[0].zzz: found an unknown key; expected one of depth, berths",
        ),
        (
            "harbours:\n  - berths: [a]\nname: n\n",
            "2: harbours[0].depth: found nothing; expected a value here",
        ),
        ("name: n\nwait: 5\n", "2: wait: found 5; expected a duration such as 250ms, 30s, 10m, 2h or 30d"),
        ("name: n\nload: 0.2\n", "2: load: found 0.2; expected a percent such as 20%"),
        ("name: n\nload: 20\n", "2: load: found 20; expected a percent such as 20%"),
        (
            "name: n\nharbours: [{depth: 0}]\n",
            "2: harbours[0].depth: found 0; expected greater than or equal to 1",
        ),
        ("name: n\ncrew: {names: []}\n", "2: crew.names: found []; expected at least 1 of them"),
        # Not also as a list that is too short.
        (
            "name: n\ncrew: {names: [Anna]}\n",
            "2: crew.names[0]: found 'Anna'; expected text that matches ^[a-z]+$",
        ),
        ("name: a\nname: b\n", "2: name: found the key twice; expected each key once"),
        (
            "name: n\nharbours:\n  - depth: 101\n",
            "3: harbours[0].depth: found 101; expected a depth that ships have",
        ),
        ("", "1: found a file that is empty; expected a mapping"),
        ("a secret token", "1: found a file that is text; expected a mapping"),
        ("[1, 2]", "1: found a file that is a list; expected a mapping"),
        ("7", "1: found a file that is a number; expected a mapping"),
        (
            "a: b: c\n",
            "1: found a syntax error at column 5: mapping values are not allowed here; expected valid YAML",
        ),
        ("a:\n\tb: 1\n", "2: found character '\\t' that cannot start any token, at column 1; expected valid YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_what_would_be_right(text: str, told: str) -> None:
    assert problems(text) == [f"voyage.yaml:{told}"]


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    found = problems("nam: n\nwait: soon\nharbours: [{depth: 0}]\n")
    assert [line.split(":")[1] for line in found] == ["1", "1", "2", "3"]


def test_of_a_long_value_only_the_beginning_is_quoted() -> None:
    (line,) = problems(f"name: n\nharbours: [{{depth: {'x' * 500}}}]\n")
    assert f"found '{'x' * 79}...; expected" in line


def test_of_many_problems_the_first_twenty_are_told(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("".join(f"key{number}: 1\n" for number in range(20_000)))
    with pytest.raises(SpecError) as caught:
        load_spec(path, Voyage)
    lines = str(caught.value).splitlines()
    assert len(lines) == MOST_PROBLEMS + 1
    assert lines[-1].endswith("and more problems")
    # Each is found by a walk through the file: those that are not told are not looked for.
    assert len(caught.value.problems) == MOST_PROBLEMS + 1


def test_no_problem_repeats_what_is_as_long_as_a_page(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(f"{'k' * 200_000}: 1\n")
    with pytest.raises(SpecError) as caught:
        load_spec(path, Voyage)
    assert max(map(len, str(caught.value).splitlines())) < 600
