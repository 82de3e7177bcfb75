"""Figures as inline SVG that take their colours and fonts from the page, in light and in dark."""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def can_draw() -> bool:
    """Whether matplotlib is installed; the image that a workflow's steps run in leaves it out."""
    return find_spec("matplotlib") is not None


# matplotlib takes colours, not CSS variables: these stand for variables, and `inline` puts those in their place.
INK = "#010101"
MUTED = "#010102"
GRID = "#010103"
BAND = "#010104"
STABLE = "#010105"
CANARY = "#010106"
GOOD = "#010107"
BAD = "#010108"
UNSURE = "#010109"
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    BAND: "band",
    STABLE: "stable",
    CANARY: "canary",
    GOOD: "good",
    BAD: "bad",
    UNSURE: "unsure",
}
"""Colours no figure would pick by itself; each becomes a variable of the page's style sheet."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    # Names are not formulas: two dollar signs in one would be read as one, and refused.
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    # The same figure gives the same bytes on every run.
    "svg.hashsalt": "tidegate",
}


def inline(figure: Figure, *, name: str, label: str) -> str:
    """The figure as an `<svg>` element; `name` keeps its ids apart from others on the page, `label` says what it shows.

    `label` is put into an attribute as it is and must be escaped.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for sentinel, variable in _VARIABLES.items():
        text = text.replace(sentinel, f"var(--{variable})")
    text = re.sub(r"'DejaVu Sans'(, sans-serif)*", "var(--font)", text)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head).replace("<svg", f'<svg role="img" aria-label="{label}"')
    return f"{head}>{rest}"
