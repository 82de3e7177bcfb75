"""`tidegate engine diff`: how two engines differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from engine_images.adapters.oci_read import read_engine
from engine_images.oci.diff import Difference, differences
from tidegate.cli.engine_images import Login, opened
from tidegate.cli.engine_view import aligned, at_most, shortened
from tidegate.cli.output import print_json

NOTHING = "-"


def run(a: str, b: str, login: Login, *, as_json: bool) -> int:
    """Print every difference."""
    with opened(a, login) as first, opened(b, login) as second:
        one, two = read_engine(first), read_engine(second)
    found = differences(one, two)
    if as_json:
        print_json({"a": one.digest, "b": two.digest, "differences": [each.model_dump(mode="json") for each in found]})
        return 0
    print("\n".join(_lines(found)) if found else "no difference in what the engines hold")
    return 0


def _lines(found: Sequence[Difference]) -> Iterator[str]:
    for part, group in groupby(found, lambda each: each.part):
        yield f"{part}"
        rows = [(f"  {each.name}", f"{_said(each.a)} -> {_said(each.b)}") for each in group]
        yield from at_most(list(aligned(rows)))


def _said(value: str | None) -> str:
    return NOTHING if value is None else shortened(value) or '""'
