"""Puts what is known into HTML: the whole page, or the parts of it that change."""

from __future__ import annotations

import hashlib
from importlib import resources

from pipelines.page.model import Picture, View
from pipelines.page.rows import delivery, elapsed, news, ticked
from pipelines.templates import html_templates
from pipelines.wording import moment

BY_TIME = "status"
"""The part that changes by time alone."""
PARTS = ("news", BY_TIME, "wishes", "now", "earlier")
"""In the order of the page; each is a macro of the template, and the id of an element that holds what it says."""

_ENVIRONMENT = html_templates("pipelines.page")


def draw(view: View) -> Picture:
    """The parts as they are now."""
    seen = [(each, delivery(each)) for each in view.look.deliveries] if view.look else []
    known = {
        "view": view,
        "moment": moment,
        "ticked": ticked,
        "sentence": news(view),
        "elapsed": elapsed(view),
        "open": [rows for each, rows in seen if not each.over],
        "over": [rows for each, rows in seen if each.over],
    }
    module = _ENVIRONMENT.get_template("parts.html.j2").make_module(known)
    parts = {name: str(getattr(module, name)()) for name in PARTS}
    lasting = "\0".join(html for name, html in parts.items() if name != BY_TIME)
    return Picture(parts=parts, digest=hashlib.sha256(lasting.encode()).hexdigest()[:16])


def page(model: str, picture: Picture) -> str:
    """The whole page, for browsers that come."""
    return _ENVIRONMENT.get_template("page.html.j2").render(model=model, picture=picture)


def style() -> str:
    """The report's style sheet, and what only the live page has."""
    return _text("pipelines.report", "report.css") + _text("pipelines.page", "page.css")


def script() -> str:
    """What keeps the page current."""
    return _text("pipelines.page", "page.js")


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
