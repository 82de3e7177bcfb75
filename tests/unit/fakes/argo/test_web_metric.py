"""An AnalysisRun with a `web` metric ends as the real controller's (1.9.1) did with a judge that answers in turn."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from fakes.argo.web_metric import AnalysisRun

FAIL = {"failureCondition": 'result.outcome == "fail"', "failureLimit": 0, "interval": "10s"}
STEP = {"successCondition": 'result.outcome == "pass"', "consecutiveSuccessLimit": 1, "inconclusiveLimit": 6, **FAIL}
BACKGROUND = {"successCondition": 'result.outcome != "fail"', **FAIL}


@pytest.mark.parametrize(
    ("metric", "says", "phase", "measurements"),
    [
        (STEP, ["running", "running", "running", "pass"], "Successful", 4),
        (STEP, ["running", "running", "running", "fail"], "Failed", 4),
        (STEP, ["running"], "Inconclusive", 7),
        (BACKGROUND, ["running", "running", "running", "fail"], "Failed", 4),
        ({**STEP, "consecutiveSuccessLimit": 2}, ["pass", "running", "pass"], "Successful", 4),
        ({**STEP, "consecutiveSuccessLimit": 2, "count": 3}, ["pass", "running", "pass"], "Inconclusive", 3),
    ],
)
def test_it_ends(metric: dict[str, object], says: Sequence[str], phase: str, measurements: int) -> None:
    """The last two rows: as documented since 1.8, not seen."""
    answers = iter(says)
    last = says[-1]

    def send(*_: object) -> tuple[int, bytes]:
        return 200, json.dumps({"outcome": next(answers, last), "sentence": "so"}).encode()

    web = {"provider": {"web": {"url": "http://judge", "jsonBody": {}, "method": "POST"}}}
    run = AnalysisRun({"spec": {"args": [], "metrics": [{**metric, **web}]}}, {}, send)
    for _ in range(20):
        run.measure()
    assert (run.phase, run.counts.total()) == (phase, measurements)
