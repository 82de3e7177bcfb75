"""What was aimed at, what was measured, and whether that is enough; worst cells are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.canary_simulation.figure_model import ALIKE, OURS, CellFigures, StudyFigures
from benchmarks.canary_simulation.scenarios import HARDER, Question


@dataclass(frozen=True)
class Target:
    """One limit that a figure of one decider must keep in every one of some cells."""

    words: str
    question: Question
    what: str
    limit: float
    shown: Callable[[float], str]
    among: Callable[[CellFigures], bool] = lambda _: True
    decider: str = OURS

    def row(self, figures: StudyFigures) -> tuple[str, str, str] | None:
        """The target, the worst cells, and whether it is met; None when no such cell was simulated."""
        cells = [cell for cell in figures.asking(self.question) if self.among(cell)]
        if not cells:
            return None
        values = {cell.name: cell.number(self.decider, self.what) for cell in cells}
        missed = {name: value for name, value in values.items() if value is None or value > self.limit}
        if missed:
            measured = "; ".join(f"{name}: {self._shown(value)}" for name, value in missed.items())
            return self.words, measured, f"no, {len(missed)} of {len(cells)} cells" if len(cells) > 1 else "no"
        worst = max(values, key=lambda name: values[name] or 0.0)
        return self.words, f"{worst}: {self._shown(values[worst])}", "yes"

    def _shown(self, value: float | None) -> str:
        return "never" if value is None else self.shown(value)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


def _times(value: float) -> str:
    return f"{value:.1f}x"


def _usual(cell: CellFigures) -> bool:
    return cell.name not in HARDER


def _plain(cell: CellFigures) -> bool:
    return cell.name in PLAIN


def _named(name: str) -> Callable[[CellFigures], bool]:
    return lambda cell: cell.name == name


OVER = "detect_{}_over_oracle"
PLAIN = ("200/s, 5 %", "20/s, 5 %", "2/s, 5 %, eight hours")
"""Traffic of which nothing else is special than how much there is."""
TARGETS: Sequence[Target] = (
    Target("good versions rolled back: at most 1 %", Question.HEALTHY, "false_rollback", 0.01, _percent),
    Target("its upper bound: at most 1.5 %", Question.HEALTHY, "false_rollback_upper_bound", 0.015, _percent),
    Target("accepted at a margin: at most 5 %", Question.MARGIN, "false_acceptance", 0.05, _percent),
    Target("rolled back: median at most 2x the oracle", Question.REGRESSION, OVER.format("median"), 2, _times, _usual),
    Target("80 % at most 2.5x the oracle", Question.REGRESSION, OVER.format("p80"), 2.5, _times, _usual),
    Target(
        "median at most 1.5x where pods are known to be alike",
        Question.REGRESSION,
        OVER.format("median"),
        1.5,
        _times,
        _usual,
        ALIKE,
    ),
    Target(
        "80 % at most 2.5x where pods are known to be alike",
        Question.REGRESSION,
        OVER.format("p80"),
        2.5,
        _times,
        _usual,
        ALIKE,
    ),
    Target(
        "TTFT +20 % within 40 s at 200/s",
        Question.REGRESSION,
        "detect_median_seconds",
        40,
        _seconds,
        _named("200/s: TTFT +20 %"),
    ),
    Target(
        "TTFT +20 % within 300 s at 20/s",
        Question.REGRESSION,
        "detect_median_seconds",
        300,
        _seconds,
        _named("20/s: TTFT +20 %"),
    ),
    Target(
        "good versions accepted: median at most 1.5x the oracle",
        Question.HEALTHY,
        "accept_median_over_oracle",
        1.5,
        _times,
        _plain,
    ),
    Target("80 % at most 2.5x the oracle", Question.HEALTHY, "accept_p80_over_oracle", 2.5, _times, _plain),
    Target(
        "good versions accepted within 150 s at 200/s",
        Question.HEALTHY,
        "accept_median_seconds",
        150,
        _seconds,
        _named("200/s, 5 %"),
    ),
    Target(
        "good versions accepted within 20 min at 20/s",
        Question.HEALTHY,
        "accept_median_seconds",
        1200,
        _seconds,
        _named("20/s, 5 %"),
    ),
    Target(
        "at 2/s inconclusive, never accepted",
        Question.HEALTHY,
        "accept_share",
        0,
        _percent,
        _named("2/s, 5 %"),
    ),
)


def target_rows(figures: StudyFigures) -> Iterator[tuple[str, str, str]]:
    """Target, worst measured, met or not."""
    for target in TARGETS:
        row = target.row(figures)
        if row:
            yield row
