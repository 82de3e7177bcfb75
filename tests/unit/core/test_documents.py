"""A text of several documents is read whole or refused with the problems of all of them."""

from __future__ import annotations

from typing import Literal, Self

import pytest
from pydantic import Field, model_validator

from tidegate.core.model import SpecModel, at_odds
from tidegate.core.spec import Problem, SpecError, parse_documents


class Ship(SpecModel):
    kind: Literal["ship"]
    masts: int = Field(default=1, ge=1)
    sails: int = 1

    @model_validator(mode="after")
    def _carries_its_sails(self) -> Self:
        if self.sails > 5 * self.masts:
            raise at_odds(f"{self.sails} sails on {self.masts} masts", "at most five a mast")
        return self


class Fleet(SpecModel):
    kind: Literal["fleet"]
    ships: tuple[Ship, ...] = ()
    name: str = ""


def kind_of(data: object) -> type[Ship | Fleet] | None:
    kinds: dict[object, type[Ship | Fleet]] = {"ship": Ship, "fleet": Fleet}
    return kinds.get(data.get("kind")) if isinstance(data, dict) else None


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as refused:
        parse_documents(text, kind_of, file="sea.yaml", expected="a ship or a fleet")
    return [str(problem) for problem in refused.value.problems]


def test_each_document_is_read_as_what_it_says_it_is() -> None:
    read = parse_documents("kind: ship\n---\n---\n# sunk\n---\nkind: fleet\n", kind_of, file="a", expected="a ship")
    assert [document.spec for document in read] == [Ship(kind="ship"), Fleet(kind="fleet")]


def test_a_document_knows_where_in_the_text_it_is() -> None:
    _, fleet = parse_documents(
        "kind: ship\n---\nkind: fleet\nships:\n  - kind: ship\n", kind_of, file="a", expected="a ship"
    )
    assert fleet.problem(("ships", 0, "kind"), "one", "two") == Problem("a", 5, "ships[0].kind", "one", "two")


def test_the_problems_of_all_documents_are_told_with_lines_of_the_text() -> None:
    assert problems("kind: ship\nmasts: 0\n---\nkind: tree\n---\nkind: fleet\nsize: 1\n") == [
        "sea.yaml:2: masts: found 0; expected greater than or equal to 1",
        "sea.yaml:4: found a document of no known format; expected a ship or a fleet",
        "sea.yaml:7: size: found an unknown key; expected one of kind, ships, name",
    ]


def test_what_is_at_odds_in_one_part_is_told_next_to_what_is_wrong_in_others() -> None:
    assert problems("kind: fleet\nname: 1\nships: [{kind: ship, sails: 9}, {kind: ship, masts: 0}]\n") == [
        "sea.yaml:2: name: found 1; expected a valid string",
        "sea.yaml:3: ships[0]: found 9 sails on 1 masts; expected at most five a mast",
        "sea.yaml:3: ships[1].masts: found 0; expected greater than or equal to 1",
    ]


def test_nothing_at_all_is_a_problem_too() -> None:
    assert problems("# only words\n") == ["sea.yaml:1: found an empty file; expected a ship or a fleet"]


@pytest.mark.parametrize("text", ["a: [", "a: \x07"])
def test_what_is_no_yaml_is_told_in_one_line(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("sea.yaml:1: found ")
    assert problem.endswith("expected valid YAML")
