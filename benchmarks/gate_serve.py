"""How often a healthy canary is called worse though somebody asks every minute, as JSON.

    .venv/bin/python benchmarks/gate_serve.py --runs 1000

Each run is one trial of `tidegate gate serve` (the class itself, without sockets) of a canary that is exactly as good
as stable, asked once a minute. Next to it, on the same counts, a fixed-sample test that is repeated
at each minute: the one-sided test of two proportions of failed requests at the same level. Errors and times are drawn
for each minute; nothing else is simulated.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import numpy as np
from scipy.stats import norm

from gates.evidence.batch import ArmName, Batch, Buckets, PodEvidence
from gates.model import ArmKey, GateOutcome
from gates.reports.gate_file import GateFile
from gates.trials import Judge, Question
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeClock

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {errors: {max_increase: 2pp}}\n"
LEVEL = 0.01
"""Of both: the budget `rollback`, and the level of the repeated test."""
PER_SECOND = {ArmName.STABLE: 20.0, ArmName.CANARY: 2.0}
FAILING = 0.01
EDGES = (0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
"""A part of those of vLLM's histogram of times to first token, in seconds."""
MEDIAN, SPREAD = 0.2, 0.5
MINUTE = timedelta(minutes=1)
ASKED = Question(service="support-llm", stable="6", canary="7", region="eu")


@dataclass(frozen=True)
class Ending:
    """One run."""

    trial: str
    repeated: bool
    """Whether the repeated test said so at any minute."""
    once: bool
    """Whether it would have at the end, asked only then."""


class HealthyTraffic:
    """A `TrialEvidence`: both arms are alike."""

    settles_within = timedelta(0)

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        below = norm.cdf(np.log(np.asarray(EDGES) / MEDIAN) / SPREAD)
        self._shares = np.diff(np.concatenate([[0.0], below, [1.0]]))
        self.counts = {arm: np.zeros(2, dtype=int) for arm in PER_SECOND}

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        _ = stable, canary
        pods = tuple(self._pod(arm, (until - since).total_seconds()) for arm in PER_SECOND)
        return Batch(time=until.timestamp(), source="proxy", arms=pods)

    def sampled(self, arm: ArmKey, since: datetime, until: datetime) -> list[datetime]:
        _ = arm, since
        return [until]

    def selectors(self, arm: ArmKey) -> str:
        return str(arm)

    def _pod(self, arm: ArmName, seconds: float) -> PodEvidence:
        requests = int(self._rng.poisson(PER_SECOND[arm] * seconds))
        errors = int(self._rng.binomial(requests, FAILING))
        self.counts[arm] += (requests, errors)
        times = tuple(self._rng.multinomial(requests - errors, self._shares).tolist())
        return PodEvidence(arm=arm, requests=requests, errors=errors, ttft=Buckets(edges=EDGES, counts=times))

    def looks_worse(self) -> bool:
        """The one-sided test of two proportions on everything so far."""
        (stable, failed), (canary, lost) = self.counts[ArmName.STABLE], self.counts[ArmName.CANARY]
        pooled = (failed + lost) / (stable + canary)
        deviation = math.sqrt(pooled * (1 - pooled) * (1 / stable + 1 / canary))
        return bool(deviation and (lost / canary - failed / stable) / deviation > norm.ppf(1 - LEVEL))


def ended(minutes: int, seed: int) -> Ending:
    """One healthy canary, asked each minute."""
    clock, source = FakeClock(), HealthyTraffic(seed)
    plan = parse_spec(GATES, GateFile, file="gates.yaml").terms(counted_by="proxy")
    worst, repeated, once = GateOutcome.RUNNING, False, False
    judge, asked = Judge(plan, MINUTE, source, clock), ASKED.model_copy(update={"since": clock.now()})
    for _ in range(minutes):
        clock.elapsed += 60
        answer = judge.ask(asked)
        worst = max(worst, answer.outcome) if answer.outcome is GateOutcome.FAIL else worst
        once = source.looks_worse()
        repeated = repeated or once
    trial = "fail" if worst is GateOutcome.FAIL else str(answer.outcome)
    return Ending(trial=trial, repeated=repeated, once=once)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count false alarms of gate serve under a question a minute.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--minutes", type=int, default=60, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with ProcessPoolExecutor(asked.processes) as pool:
        seeds = range(asked.seed, asked.seed + asked.runs)
        endings = list(pool.map(partial(ended, asked.minutes), seeds, chunksize=10))
    share = {
        "trials_that_failed": sum(each.trial == "fail" for each in endings),
        "trials_that_passed": sum(each.trial == "pass" for each in endings),
        "trials_without_verdict": sum(each.trial == "running" for each in endings),
        "repeated_test_said_worse": sum(each.repeated for each in endings),
        "single_test_said_worse": sum(each.once for each in endings),
    }
    document = {
        "runs": asked.runs,
        "minutes": asked.minutes,
        "level": LEVEL,
        "canary_per_second": PER_SECOND[ArmName.CANARY],
        "stable_per_second": PER_SECOND[ArmName.STABLE],
        "failing": FAILING,
        **share,
        "seconds": round(time.monotonic() - began, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
