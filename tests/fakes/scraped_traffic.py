"""Users of a region in front of a stable and a canary engine, as a Prometheus that scrapes each in its phase sees them.

Two targets are never scraped at the same moment: Prometheus spreads them over the interval. So what a window has of
either arm is up to an interval late, and not by as much as of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fakes.batches import VLLM_EDGES
from gates.evidence import Arm, Batch
from gates.model import ArmKey
from gates.scraped.batch import batch_of
from gates.scraped.conventions import BUCKET, HISTOGRAMS
from gates.scraped.counting import BY_ENGINE
from gates.scraped.series import ArmScrapes, RawSeries, Window
from gates.scraped.targets import Targets
from gates.spec import LatencyMetric

LOOKBACK_SECONDS = 120.0
PAST_SECONDS = 1800.0
LASTS_SECONDS = 3600.0
DRAWS = 1 << 20

Numbers = NDArray[np.float64]
Answered = tuple[Numbers, Numbers, NDArray[np.bool_]]
"""Of an arm's requests, in order: when each ended, its TTFT in seconds, whether it failed."""
Shares = tuple[float, int, int]
"""From when on (Unix time), which weight, which mirror."""


@dataclass
class ScrapedTraffic:
    """An `EvidenceSource`; `shares` says who got what of the users' requests, and since when."""

    start: float
    """Unix time; users were there for half an hour before."""
    shares: Callable[[], Sequence[Shares]]
    interval: float = 15.0
    """Between two scrapes of a target, in seconds."""
    stable_phase: float = 0.0
    canary_phase: float = 0.0
    per_second: float = 20.0
    slower: float = 1.0
    """The canary's times over the stable's."""
    failing: float = 0.0
    """Of the canary's answers, 5xx."""
    lost: float = 0.0
    """Of the copies, never made."""
    settles_within: timedelta = timedelta(seconds=10)
    restarts_at: float | None = None
    """When the stable's process begins anew, and counts from 0."""
    seed: int = 0
    windows: list[tuple[datetime, datetime]] = field(default_factory=list)
    _kept: dict[tuple[Arm, tuple[Shares, ...]], Answered] = field(default_factory=dict)

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`."""
        self.windows.append((since, until))
        first, last = since.timestamp() - LOOKBACK_SECONDS, until.timestamp()
        arms = {Arm.STABLE: (stable, self.stable_phase), Arm.CANARY: (canary, self.canary_phase)}
        times = {arm: self._scrapes(phase, first, last) for arm, (_, phase) in arms.items()}
        targets = Targets(
            [(self._labels(arm), [(at, 1.0) for at in times[arm]]) for arm in arms],
            [(self._labels(arm), [(at, self._started(arm, at)) for at in times[arm]]) for arm in arms],
            lookback_seconds=LOOKBACK_SECONDS,
        )
        scraped = [
            ArmScrapes(arm=arm, key=key, series=list(self._series(arm, times[arm]))) for arm, (key, _) in arms.items()
        ]
        window = Window(since=since.timestamp(), until=last, targets=targets)
        return batch_of(scraped, window, proxy_pod_label="pod", counting=BY_ENGINE)

    def _scrapes(self, phase: float, first: float, last: float) -> list[float]:
        begin, end = math.ceil((first - phase) / self.interval), math.floor((last - phase) / self.interval)
        return [number * self.interval + phase for number in range(begin, end + 1)]

    def _series(self, arm: Arm, at: Sequence[float]) -> Iterator[RawSeries]:
        labels = self._labels(arm)
        ended, seconds, failed = self._answered(arm)
        of_users = {"handler": "/v1/chat/completions", "method": "POST"}
        for status, mine in (("2xx", ~failed), ("5xx", failed)):
            yield self._counter(BY_ENGINE.responses, labels | of_users | {"status": status}, arm, at, ended[mine])
        good, times = ended[~failed], seconds[~failed]
        for edge in (*VLLM_EDGES, float("inf")):
            bucket = labels | {"le": "+Inf" if np.isinf(edge) else str(edge)}
            yield self._counter(HISTOGRAMS[LatencyMetric.TTFT] + BUCKET, bucket, arm, at, good[times <= edge])

    def _counter(self, name: str, labels: dict[str, str], arm: Arm, at: Sequence[float], ended: Numbers) -> RawSeries:
        began = np.array([self._started(arm, each) for each in at])
        counts = np.searchsorted(ended, at, side="right") - np.searchsorted(ended, began, side="right")
        return RawSeries(name=name, labels=labels, values=tuple(zip(at, counts.astype(float).tolist(), strict=True)))

    def _answered(self, arm: Arm) -> Answered:
        """As `_told`, once for each change of the shares."""
        known = (arm, tuple(self.shares()))
        if known not in self._kept:
            self._kept[known] = self._told(arm)
        return self._kept[known]

    def _told(self, arm: Arm) -> Answered:
        at, draw, copied, seconds, fails = self._drawn
        weight, mirror = self._shares_at(at)
        on_canary = draw < weight
        if arm is Arm.STABLE:
            mine, times, bad = ~on_canary, seconds, np.zeros_like(on_canary)
        else:
            mine = on_canary | ((draw < mirror) & (copied >= self.lost))
            times, bad = seconds * self.slower, fails < self.failing
        ended = at + times
        order = np.argsort(ended[mine], kind="stable")
        return ended[mine][order], times[mine][order], bad[mine][order]

    @cached_property
    def _drawn(self) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        rng = np.random.default_rng(self.seed)
        count = int((PAST_SECONDS + LASTS_SECONDS) * self.per_second)
        at = self.start - PAST_SECONDS + np.arange(count) / self.per_second
        draws = [rng.random(count) for _ in range(3)]
        return at, draws[0], draws[1], rng.lognormal(np.log(0.2), 0.5, count), draws[2]

    def _shares_at(self, at: Numbers) -> tuple[Numbers, Numbers]:
        known = [(-np.inf, 0, 0), *self.shares()]
        which = np.searchsorted([begin for begin, _, _ in known], at, side="right") - 1
        table = np.array([(weight / 100, mirror / 100) for _, weight, mirror in known])
        return table[which, 0], table[which, 1]

    def _started(self, arm: Arm, at: float) -> float:
        if arm is Arm.STABLE and self.restarts_at is not None and at >= self.restarts_at:
            return self.restarts_at
        return self.start - (2 * PAST_SECONDS if arm is Arm.STABLE else 60.0)

    def _labels(self, arm: Arm) -> dict[str, str]:
        return {"job": "engines", "instance": str(arm), "pod": str(arm), "region": "eu-west-1"}
