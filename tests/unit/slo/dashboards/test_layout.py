from __future__ import annotations

from itertools import combinations

from fakes.metrics.slos import SLOS
from hypothesis import given
from hypothesis import strategies as some

from slo.dashboards import dashboards_of
from slo.dashboards.grafana import grid_positions
from slo.dashboards.model import COLUMNS, GridPosition, Panel, PanelKind, PanelRow, Query

panels = some.builds(
    lambda width, height: Panel(
        title="",
        kind=PanelKind.LINES,
        question="",
        action="",
        queries=(Query(expr="", legend=""),),
        width=width,
        height=height,
    ),
    some.integers(1, COLUMNS),
    some.integers(1, 12),
)
rows = some.builds(
    lambda title, found: PanelRow(title=title, panels=tuple(found)),
    some.sampled_from(["", "A row"]),
    some.lists(panels, min_size=1, max_size=9),
)


def overlap(one: GridPosition, other: GridPosition) -> bool:
    apart = one.x + one.width <= other.x or other.x + other.width <= one.x
    above = one.y + one.height <= other.y or other.y + other.height <= one.y
    return not (apart or above)


@given(some.lists(rows, min_size=1, max_size=4).map(tuple))
def test_nothing_stands_on_anything_else_or_next_to_the_grid(found: tuple[PanelRow, ...]) -> None:
    places = [place for _, place in grid_positions(found)]
    assert not any(overlap(one, other) for one, other in combinations(places, 2))
    assert all(place.x + place.width <= COLUMNS for place in places)


@given(some.lists(rows, min_size=1, max_size=4).map(tuple))
def test_what_is_read_first_stands_first(found: tuple[PanelRow, ...]) -> None:
    places = [place for _, place in grid_positions(found)]
    assert [(place.y, place.x) for place in places] == sorted((place.y, place.x) for place in places)


def test_the_first_screen_of_on_call_is_a_screen() -> None:
    first = dashboards_of(SLOS, service="chat")[0].rows[0]
    assert first.title == ""
    assert max(place.y + place.height for _, place in grid_positions((first,))) <= 14
