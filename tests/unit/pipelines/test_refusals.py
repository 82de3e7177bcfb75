"""What a spec may not say, in files: a right spec, then what is changed in it, and every line that is told.

A line of `+` stands in the place of the one with the same first word, or else behind the last, and a gate's under
`gates`; after lines of `-`, it stands in their place. `?` is the operator's trust file; what follows `!` is told, and
`ok` where nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from fakes.golden import is_golden

from pipelines.plan.customization import customization_conflicts
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import not_for_a_spec
from pipelines.spec.trust import Trust
from tidegate.core.model import SpecConflict
from tidegate.core.spec import SpecError, parse_spec

ROOT = Path(__file__).parents[3]
FILES = ROOT / "tests/golden/refusals"
SECRET = "hunter2"
"""In what is said, where it may hold a secret: nothing of it is ever told."""


def same_place(old: str, new: str) -> bool:
    words = [(line[0] == " ", line.strip().removeprefix("- ").partition(":")[0]) for line in (old, new)]
    return words[0] == words[1]


def changed(base: str, case: list[str]) -> str:
    old = ""
    for sign, block in groupby((line for line in case if line[0] in "-+"), key=lambda line: line[0]):
        lines = [line[2:] for line in block]
        if sign == "-":
            old = "\n".join(lines)
            assert base.count(old) == 1, f"{old!r} stands there {base.count(old)} times"
        elif old:
            base, old = base.replace(old, "\n".join(lines)), ""
        else:
            last, standing = "", base.splitlines()
            for line in lines:
                known = [each for each in standing if same_place(each, line)]
                before = known[0] if known else last or "gates:" if line[0] == " " else base.splitlines()[-1]
                base = base.replace(f"{before}\n", f"{line}\n" if known else f"{before}\n{line}\n", 1)
                last = last if known else line
    return base


def told(text: str, operator: str) -> Iterator[str]:
    def by_the_operator(spec: Delivery) -> Iterator[SpecConflict]:
        yield from not_for_a_spec(spec, trust.spec)
        yield from customization_conflicts(spec, trust)

    try:
        trust = parse_spec(operator, Trust, file="trust")
        parse_spec(text, Delivery, file="d", also=by_the_operator)
    except SpecError as error:
        yield from (f"! {str(problem).removeprefix('d:')}" for problem in error.problems)
    else:
        yield "ok"


@pytest.mark.parametrize("file", sorted(FILES.glob("*.txt")), ids=lambda file: file.stem)
def test_what_is_wrong_is_told_with_its_place_and_what_could_be(file: Path) -> None:
    written, *cases = file.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    base = f"{written}\n"
    if written[0] == "=":
        path, *added = written.splitlines()
        base = changed((ROOT / path.removeprefix("= ")).read_text(encoding="utf-8"), added)
    shown = [written]
    for case in cases:
        lines = [line for line in case.splitlines() if not line.startswith("!") and line != "ok"]
        operator = "\n".join(line[2:] for line in lines if line[0] == "?") or "kind: Trust"
        found = list(told(changed(base, lines), operator))
        assert SECRET not in "".join(found)
        shown.append("\n".join([*lines, *found]))
    is_golden("\n\n".join([*shown, ""]).removesuffix("\n"), file)
