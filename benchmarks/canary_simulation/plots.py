"""Draw the figures of a study as SVG.

.venv/bin/python -m benchmarks.canary_simulation.plots figures.json docs/img
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.canary_simulation.figure_model import OURS, CellFigures, read_figures
from benchmarks.canary_simulation.scenarios import Question

BLUE, GREY, RED = "#1565c0", "#9e9e9e", "#c62828"
STYLES = {
    OURS: (BLUE, "o"),
    "Kayenta, judged every 5 minutes": ("#6a1b9a", "s"),
    "Kayenta, judged every minute": ("#ab47bc", "D"),
    "z-tests, once at the end": ("#2e7d32", "^"),
    "z-tests, peeked every 10 s": ("#66bb6a", "v"),
    "z-tests on pooled totals, once": ("#00838f", "P"),
    "Flagger, threshold 10": ("#ef6c00", "X"),
    "Argo Rollouts, failureLimit 3": ("#6d4c41", "<"),
    "Argo Rollouts against stable, failureLimit 3": ("#a1887f", ">"),
}
"""Who is drawn, and how."""
LEAST_PERCENT = 0.08
"""Where a share of nothing is drawn on a logarithmic scale."""
STRETCH = 0.42
"""Of a row's height that its markers share."""


def main() -> None:
    figures, folder = read_figures(Path(sys.argv[1])), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    # The same figures must give the same files.
    mpl.rcParams.update({"svg.hashsalt": "canary-simulation", "font.size": 9, "svg.fonttype": "none"})
    for name, (question, draw, label) in PLOTS.items():
        cells = figures.asking(question)
        figure = Figure(figsize=(8, 1.4 + 0.5 * len(cells)), layout="constrained")
        axes = figure.subplots()
        draw(axes, cells)
        _rows(axes, cells, label)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def false_rollback(axes: Axes, cells: Sequence[CellFigures]) -> None:
    """Every decider's share of good versions that went back, with its upper bound."""
    for place, (decider, (color, marker)) in enumerate(STYLES.items()):
        for row, cell in enumerate(cells):
            y = row + STRETCH * (2 * place / (len(STYLES) - 1) - 1)
            _share(axes, (y, cell, decider), "false_rollback", color, marker)
    axes.set_xscale("log")
    axes.set_xlim(LEAST_PERCENT * 0.8, 115)
    axes.axvline(1, color=RED, lw=1, ls="--")
    axes.set_xticks([0.1, 1, 10, 100], ["0.1 %", "1 %", "10 %", "100 %"])


def false_acceptance(axes: Axes, cells: Sequence[CellFigures]) -> None:
    """Our share of versions at the margin that were accepted."""
    for row, cell in enumerate(cells):
        _share(axes, (row, cell, OURS), "false_acceptance", BLUE, "o")
    axes.axvline(5, color=RED, lw=1, ls="--")
    bounds = (cell.number(OURS, "false_acceptance_upper_bound") or 0.0 for cell in cells)
    axes.set_xlim(0, max(10, *(105 * bound for bound in bounds)))


def detection(axes: Axes, cells: Sequence[CellFigures]) -> None:
    """Median and 80th percentile of the time to a rollback, over the oracle's."""
    for decider, shift in ((OURS, -0.2), ("Kayenta, judged every 5 minutes", 0.2)):
        color, marker = STYLES[decider]
        for row, cell in enumerate(cells):
            ends = [cell.number(decider, f"detect_{each}_over_oracle") for each in ("median", "p80")]
            known = [each for each in ends if each is not None]
            axes.plot(known, [row + shift] * len(known), color=color, lw=2, solid_capstyle="butt")
            axes.plot(known[:1], [row + shift] * len(known[:1]), marker, color=color, ms=6, label=_once(decider, row))
    axes.set_xscale("log")
    for limit in (1.5, 2.5):
        axes.axvline(limit, color=RED, lw=1, ls="--")
    axes.set_xticks([0.5, 1, 1.5, 2.5, 5, 10, 20, 50], ["0.5", "1", "1.5", "2.5", "5", "10", "20", "50"])
    axes.minorticks_off()


def acceptance(axes: Axes, cells: Sequence[CellFigures]) -> None:
    """Median and 80th percentile of the time until a good version is accepted; peers wait for their schedule's end."""
    for row, cell in enumerate(cells):
        ends = [cell.number(OURS, f"accept_{each}_seconds") for each in ("median", "p80")]
        minutes = [each / 60 for each in ends if each is not None]
        axes.plot(minutes, [row] * len(minutes), color=BLUE, lw=3, solid_capstyle="butt")
        axes.plot(minutes[:1], [row] * len(minutes[:1]), "o", color=BLUE, ms=7, label=_once(OURS, row))
        schedule = cell.number("Kayenta, judged every 5 minutes", "accept_median_seconds")
        if schedule:
            axes.plot([schedule / 60], [row], "|", color=GREY, ms=16, mew=3, label=_once("all peers", row))
        if not minutes:
            axes.text(1.1, row, "inconclusive, never accepted", va="center", color=BLUE)
    axes.set_xscale("log")
    axes.set_xlim(1, 600)
    axes.set_xticks([1, 2, 5, 10, 20, 60, 120, 300], ["1", "2", "5", "10", "20", "60", "120", "300"])
    axes.minorticks_off()


def _share(axes: Axes, where: tuple[float, CellFigures, str], what: str, color: str, marker: str) -> None:
    """A share and its upper bound in percent; hollow when it never happened."""
    y, cell, decider = where
    share, bound = cell.number(decider, what), cell.number(decider, f"{what}_upper_bound")
    if share is None or bound is None:
        return
    x = max(100 * share, LEAST_PERCENT)
    axes.plot([x, 100 * bound], [y, y], color=color, lw=1)
    label = _once(decider, round(y))
    axes.plot([x], [y], marker, color=color, ms=5, mfc=color if share else "white", label=label, clip_on=False)


def _once(label: str, row: int) -> str:
    return label if row == 0 else "_nolegend_"


def _rows(axes: Axes, cells: Sequence[CellFigures], label: str) -> None:
    axes.set_yticks(range(len(cells)), [f"{cell.name}\n(n = {cell.deliveries:,})" for cell in cells])
    axes.set_ylim(len(cells) - 0.45, -0.55)
    for row in range(1, len(cells)):
        axes.axhline(row - 0.5, color="#e0e0e0", lw=0.7)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)


Draw = Callable[[Axes, Sequence[CellFigures]], None]
PLOTS: dict[str, tuple[Question, Draw, str]] = {
    "canary-false-rollback": (
        Question.HEALTHY,
        false_rollback,
        "good versions rolled back, with the 95 % upper bound (hollow: none was)",
    ),
    "canary-detection": (
        Question.REGRESSION,
        detection,
        "time until rolled back over the oracle's: median (marker) to 80th percentile",
    ),
    "canary-acceptance": (
        Question.HEALTHY,
        acceptance,
        "minutes until a good version is accepted: median (marker) to 80th percentile",
    ),
    "canary-false-acceptance": (
        Question.MARGIN,
        false_acceptance,
        "versions at the margin accepted, percent, with the 95 % upper bound (hollow: none was)",
    ),
}


if __name__ == "__main__":
    main()
