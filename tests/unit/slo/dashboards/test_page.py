"""`docs/guides/dashboards.md` has every panel with its question and what to do, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from fakes.metrics.slos import COST, SLOS

from slo.dashboards import dashboards_of

PAGE = (Path(__file__).parents[4] / "docs/guides/dashboards.md").read_text(encoding="utf-8")


def test_the_page_has_the_panels_in_the_order_in_which_they_are_read() -> None:
    panels = [panel for level in dashboards_of(SLOS, service="chat", cost=COST) for panel in level.panels]
    rows = re.findall(r"^\| (?!panel \|)([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert rows == [(panel.title, panel.question, panel.action) for panel in panels]
