"""The comparison figures: distributions of the two arms, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pipelines.report.arms import curve, quantile
from pipelines.report.svg import CANARY, STABLE, STYLE, inline

SIZE_INCHES = (3.3, 2.2)
"""Width and height; the page scales it to the room that there is."""


def distribution(name: str, title: str, arms: Sequence[tuple[str, bool, Sequence[float]]]) -> str:
    """The share of requests that took at most so many milliseconds, one curve per arm.

    `arms` are label, whether it is the canary, and seconds; none of them may be empty.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        for _, canary, seconds in arms:
            values, shares = curve([value * 1000 for value in seconds])
            colour = CANARY if canary else STABLE
            axes.step(values, shares, where="post", color=colour, linewidth=1.8)
            p95 = quantile(values, 0.95)
            axes.plot([p95], [0.95], marker="o", markersize=4.5, color=colour)
        axes.set_xlim(0, 1.15 * max(quantile(seconds, 0.99) for _, _, seconds in arms) * 1000)
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.5, 0.95], ["0%", "50%", "95%"])
        axes.set_xlabel("milliseconds")
        return inline(figure, name=name, label=escape(f"{title}: cumulative share of requests per version", quote=True))


def scores(name: str, pairs: Sequence[tuple[str, float, float]]) -> str:
    """Scores between 0 and 1 as pairs of bars: label, canary, stable."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(SIZE_INCHES[0], 0.6 + 0.6 * len(pairs)), layout="constrained")
        axes = figure.subplots()
        for row, (_, canary, stable) in enumerate(pairs):
            for offset, value, colour in ((-0.2, stable, STABLE), (0.2, canary, CANARY)):
                axes.barh(row + offset, value, height=0.32, color=colour)
                axes.text(value + 0.015, row + offset, f"{value:.2f}", va="center", fontsize=8)
        axes.set_yticks(range(len(pairs)), [label for label, _, _ in pairs])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12 * max(1.0, *(max(pair[1:]) for pair in pairs)))
        axes.grid(visible=False, axis="y")
        return inline(figure, name=name, label="Scores of the canary beside the champion's")
