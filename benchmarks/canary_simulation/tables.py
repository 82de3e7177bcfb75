"""Write the figures of a study into the page that explains them, between two comments.

.venv/bin/python -m benchmarks.canary_simulation.tables figures.json docs/internals/canary-simulation.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.canary_simulation.figure_model import ALIKE, OURS, CellFigures, StudyFigures, read_figures
from benchmarks.canary_simulation.scenarios import Question, cells
from benchmarks.canary_simulation.targets import target_rows

BEGIN, END = "<!-- figures: written by benchmarks.canary_simulation.tables -->", "<!-- end of figures -->"
PEERS = (
    "Kayenta, judged every 5 minutes",
    "Kayenta, judged every minute",
    "Flagger, threshold 10",
    "Argo Rollouts, failureLimit 3",
    "z-tests, peeked every 10 s",
    "z-tests, once at the end",
)
FAST = "Kayenta, judged every 5 minutes"


def main() -> None:
    figures, page = read_figures(Path(sys.argv[1])), Path(sys.argv[2])
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines(figures)) + f"\n\n{END}{after}")


def lines(figures: StudyFigures) -> Iterator[str]:
    """All tables."""
    machine = f"{figures.machine['processor']}, Python {figures.machine['python']}, NumPy {figures.versions['numpy']}"
    yield f"Ran on one core of {machine}; seed {', '.join(map(str, figures.seeds))}."
    missing = [cell.name for cell in cells() if cell.name not in {each.name for each in figures.cells}]
    if missing:
        yield f"\nNot run yet: {'; '.join(missing)}."
    yield from ("", "### Aimed at, and measured", "")
    yield from _table(["target", "worst measured", "met"], list(target_rows(figures)))
    yield from ("", "### Good versions rolled back", "")
    yield from _table(
        ["cell", "n", "**tidegate** (95 % upper bound)", *PEERS],
        [_healthy(cell) for cell in figures.asking(Question.HEALTHY)],
    )
    yield from ("", "### Until a good version is accepted", "")
    yield from _table(
        ["cell", "n", "oracle", "accepted", "median, 80 %", "over the oracle", "peers (end of their schedule)"],
        [_accepted(cell) for cell in figures.asking(Question.HEALTHY)],
    )
    yield from ("", "### Versions at the margin that were accepted", "")
    yield from _table(
        ["cell", "n", "**tidegate** (95 % upper bound)"],
        [
            [cell.name, str(cell.deliveries), _bounded(cell, "false_acceptance")]
            for cell in figures.asking(Question.MARGIN)
        ],
    )
    yield from ("", "### Until a bad version is rolled back", "")
    yield from _table(
        ["cell", "n", "oracle", "**tidegate**: median, 80 %", "over the oracle", "pods alike", f"{FAST}: median, seen"],
        [_detected(cell) for cell in figures.asking(Question.REGRESSION)],
    )


def _healthy(cell: CellFigures) -> list[str]:
    peers = [_percent(cell.number(peer, "false_rollback")) for peer in PEERS]
    return [cell.name, str(cell.deliveries), _bounded(cell, "false_rollback"), *peers]


def _accepted(cell: CellFigures) -> list[str]:
    accepted, theirs = _percent(cell.number(OURS, "accept_share")), _seconds(cell.number(FAST, "accept_median_seconds"))
    oracle = _seconds(cell.oracle_seconds)
    return [cell.name, str(cell.deliveries), oracle, accepted, *_median_and_p80(cell, "accept"), theirs]


def _detected(cell: CellFigures) -> list[str]:
    alike = _seconds(cell.number(ALIKE, "detect_median_seconds"))
    theirs = _seconds(cell.number(FAST, "detect_median_seconds"))
    seen = _percent(cell.number(FAST, "detect_share"))
    oracle = _seconds(cell.oracle_seconds)
    return [cell.name, str(cell.deliveries), oracle, *_median_and_p80(cell, "detect"), alike, f"{theirs}, {seen}"]


def _median_and_p80(cell: CellFigures, what: str) -> tuple[str, str]:
    """Ours in seconds, and over the oracle's."""
    median, p80 = (_seconds(cell.number(OURS, f"{what}_{each}_seconds")) for each in ("median", "p80"))
    ratios = [cell.number(OURS, f"{what}_{each}_over_oracle") for each in ("median", "p80")]
    return f"{median}, {p80}", ", ".join("-" if each is None else f"{each:.1f}x" for each in ratios)


def _bounded(cell: CellFigures, what: str) -> str:
    return f"{_percent(cell.number(OURS, what))} (<= {_percent(cell.number(OURS, f'{what}_upper_bound'))})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:,.0f} s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from map(_row, rows)


def _row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


if __name__ == "__main__":
    main()
