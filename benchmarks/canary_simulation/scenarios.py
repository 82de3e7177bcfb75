"""The cells of the study: which traffic, what is wrong, how many deliveries, what is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from benchmarks.canary_simulation.load import PodNoise
from benchmarks.canary_simulation.workloads import HEALTHY, Regression, Traffic

HIGH = Traffic(rate=200, looks=180, judged=10)
MID = Traffic(rate=20, looks=360, judged=5)
LOW = Traffic(rate=2, looks=360, judged=0.5)
STAGED = replace(HIGH, shares=(0.05, 0.25, 0.5))
RESTLESS = replace(HIGH, noise=PodNoise(sd=0.08, memory_seconds=30))
HEAVY = replace(HIGH, queued=0.03)
UNEQUAL = replace(HIGH, noise=PodNoise(sd=0.02, memory_seconds=np.inf))
COLD, COLD_MID = replace(HIGH, cached=0.6), replace(MID, cached=0.6, looks=1080)


PATIENT = replace(LOW, looks=2880)
"""Eight hours: as long as it takes to tell at so few requests."""


class Question(StrEnum):
    """What a cell asks."""

    HEALTHY = "healthy"
    """Is a good version rolled back, and when is it accepted?"""
    REGRESSION = "regression"
    """When is a bad version rolled back?"""
    MARGIN = "margin"
    """Is a version that is worse by exactly the margin accepted?"""


@dataclass(frozen=True)
class Cell:
    """Many deliveries of one kind."""

    name: str
    question: Question
    traffic: Traffic
    regression: Regression = HEALTHY
    metric: str = ""
    """At the margin: the one metric that is asked."""
    most: int = 100_000
    """Deliveries that are worth their time."""


TRAFFIC = {"200/s": HIGH, "20/s": MID, "2/s": LOW}
HEALTHY_TRAFFIC = {
    "200/s, 5 %": HIGH,
    "20/s, 5 %": MID,
    "2/s, 5 %": LOW,
    "2/s, 5 %, eight hours": PATIENT,
    "200/s, staged 5-25-50 %": STAGED,
    "200/s, heavy tail": HEAVY,
    "200/s, pods restless (AR 30 s, 8 %)": RESTLESS,
    "200/s, pods unequal (fixed, 2 %)": UNEQUAL,
    "200/s, cold cache": COLD,
    "20/s, cold cache": COLD_MID,
}
LONGEST_RUNS = {"2/s, 5 %, eight hours": 250}
REGRESSIONS = {
    "TTFT +20 %": Regression(ttft_factor=1.2),
    "TTFT +50 %": Regression(ttft_factor=1.5),
    "TTFT tail only, p95 +20 %": Regression(tail_factor=1.2),
    "2 % of requests 10x slower": Regression(slow_share=0.02),
    "errors x2": Regression(error_factor=2),
    "errors x5": Regression(error_factor=5),
    "judge -0.05": Regression(judge_drop=0.05),
    "judge -0.10": Regression(judge_drop=0.1),
}
LOOKS = {"20/s: errors x2": 1080}
"""Where an hour is too short to tell: the oracle itself needs nearly all of it."""
HARDER = {
    "200/s staged: TTFT +20 %": Cell("", Question.REGRESSION, STAGED, REGRESSIONS["TTFT +20 %"]),
    "200/s heavy tail: TTFT +20 %": Cell("", Question.REGRESSION, HEAVY, REGRESSIONS["TTFT +20 %"]),
    "200/s pods restless: TTFT +20 %": Cell("", Question.REGRESSION, RESTLESS, REGRESSIONS["TTFT +20 %"]),
    "200/s pods unequal: TTFT +20 %": Cell("", Question.REGRESSION, UNEQUAL, REGRESSIONS["TTFT +20 %"]),
    "200/s cold cache: TTFT +50 %": Cell("", Question.REGRESSION, COLD, REGRESSIONS["TTFT +50 %"]),
    "200/s: TTFT +20 % after 15 min": Cell(
        "", Question.REGRESSION, HIGH, Regression(ttft_factor=1.2, onset_seconds=900)
    ),
    "2/s: TTFT +50 %": Cell("", Question.REGRESSION, LOW, REGRESSIONS["TTFT +50 %"]),
    "2/s: errors x5": Cell("", Question.REGRESSION, LOW, REGRESSIONS["errors x5"]),
    "2/s: judge -0.10": Cell("", Question.REGRESSION, LOW, REGRESSIONS["judge -0.10"]),
}
AT_MARGIN = {
    "ttft": ("TTFT p95 +20 %", Regression(ttft_factor=1.2)),
    "errors": ("errors +1 pp", Regression(error_added=0.01)),
    "judge": ("judge -0.10", Regression(judge_drop=0.1)),
}
TAIL_AT_MARGIN = {
    "ttft": ("TTFT tail only, p95 +20 %", Regression(tail_factor=1.2)),
}


def _long_enough(cell: Cell) -> Cell:
    return replace(cell, traffic=cell.traffic.lasting(LOOKS.get(cell.name, cell.traffic.looks)))


def cells() -> list[Cell]:
    """All of them, in the order of the report."""
    healthy = [
        Cell(name, Question.HEALTHY, traffic, most=LONGEST_RUNS.get(name, Cell.most))
        for name, traffic in HEALTHY_TRAFFIC.items()
    ]
    regressed = [
        _long_enough(Cell(f"{rate}: {what}", Question.REGRESSION, traffic, regression))
        for rate, traffic in (("200/s", HIGH), ("20/s", MID))
        for what, regression in REGRESSIONS.items()
    ]
    harder = [replace(cell, name=name) for name, cell in HARDER.items()]
    margin = [
        Cell(f"{rate}: {what}", Question.MARGIN, traffic, regression, metric)
        for rate, traffic in TRAFFIC.items()
        for metric, (what, regression) in AT_MARGIN.items()
    ]
    margin += [
        Cell(f"{rate}: {what}", Question.MARGIN, TRAFFIC[rate], regression, metric)
        for rate in ("200/s", "20/s")
        for metric, (what, regression) in TAIL_AT_MARGIN.items()
    ]
    margin.append(Cell("200/s cold cache: TTFT p95 +20 %", Question.MARGIN, COLD, AT_MARGIN["ttft"][1], "ttft"))
    return [*healthy, *regressed, *harder, *margin]
