"""Where each panel stands: rows one below the other, their panels from left to right, nothing on top of anything."""

from __future__ import annotations

from collections.abc import Iterator

from slo.dashboards.model import COLUMNS, Panel, Place, Row

HEADING = 1
"""Lines that the title of a row takes."""


def placed(rows: tuple[Row, ...]) -> Iterator[tuple[Row | Panel, Place]]:
    """Headings and panels in the order in which they are read."""
    y = 0
    for row in rows:
        if row.title:
            yield row, Place(x=0, y=y, width=COLUMNS, height=HEADING)
            y += HEADING
        for line in _lines(row.panels):
            x = 0
            for panel in line:
                yield panel, Place(x=x, y=y, width=panel.width, height=panel.height)
                x += panel.width
            y += max(panel.height for panel in line)


def _lines(panels: tuple[Panel, ...]) -> Iterator[list[Panel]]:
    line: list[Panel] = []
    for panel in panels:
        if line and sum(each.width for each in line) + panel.width > COLUMNS:
            yield line
            line = []
        line.append(panel)
    yield line
