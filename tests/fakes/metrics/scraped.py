"""Engines, a proxy and their users as a Prometheus sees them that scrapes each in its phase.

What was counted, scrape by scrape, with restarts and new roles; two targets are never scraped at the same moment.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

import numpy as np
from fakes.metrics.samples import VLLM_EDGES
from numpy.typing import NDArray

from gates.evidence.batch import ArmName, Batch
from gates.evidence.names import BUCKET, BUCKET_EDGE, BY_PROXY, PROCESS_START, UP, named_by, of_this_machine
from gates.evidence.scrape import batch_of
from gates.evidence.series import ArmScrapes, RawSeries, ScrapeWindow, Targets
from gates.model import ArmKey
from tidegate.core.metrics import MetricSource, PresetName

EDGES = (0.1, 0.5, 1.0, float("inf"))
TTFT = "vllm:time_to_first_token_seconds"
LOOKBACK_SECONDS = 120.0


@dataclass(frozen=True)
class Engine:
    """One process; `role_at` says from when on it has which role."""

    name: str
    version: str
    roles: tuple[tuple[float, str], ...]
    started: float
    ended: float
    requests: Sequence[tuple[float, float]]
    """When each ended, and its TTFT in seconds."""
    cached: tuple[int, int] = (0, 0)
    """Tokens of each prompt: from the cache, and all; 0 where nobody counts them."""
    edges: tuple[float, ...] = EDGES
    offset: float = 0.0
    """When it is scraped, after each full interval."""

    def role(self, at: float) -> str:
        return self.roles[bisect_right(self.roles, at, key=lambda entry: entry[0]) - 1][1]


@dataclass(frozen=True)
class Proxy:
    """One Envoy: (when, code, torn) of each request."""

    name: str
    role: str
    version: str
    requests: Sequence[tuple[float, int]]
    torn: Sequence[float] = ()


@dataclass
class Fleet:
    """Everything that one Prometheus scrapes, every `interval` seconds."""

    engines: Sequence[Engine] = ()
    proxies: Sequence[Proxy] = ()
    interval: float = 2.0
    until: float = 600.0
    knows_starts: bool = True
    _series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for engine in self.engines:
            self._scrape_engine(engine)
        for proxy in self.proxies:
            self._scrape_proxy(proxy)

    def batch(self, stable: ArmKey, canary: ArmKey, since: float, until: float) -> Batch:
        """What the Prometheus adapter would make of it."""
        return self.batch_from(self.select(since - LOOKBACK_SECONDS, until), stable, canary, since, until)

    def batch_from(
        self, everything: Sequence[RawSeries], stable: ArmKey, canary: ArmKey, since: float, until: float
    ) -> Batch:
        """As `batch`, of series that a test has changed."""
        targets = Targets(
            [(one.labels, one.values) for one in everything if one.name == UP],
            [(one.labels, one.values) for one in everything if one.name == PROCESS_START],
            lookback_seconds=LOOKBACK_SECONDS,
        )
        arms = [
            ArmScrapes(arm=arm, key=key, series=[one for one in everything if _is_of(one, key)])
            for arm, key in ((ArmName.STABLE, stable), (ArmName.CANARY, canary))
        ]
        return batch_of(arms, ScrapeWindow(since=since, until=until, targets=targets), of_this_machine())

    def select(self, since: float, until: float) -> list[RawSeries]:
        found = []
        for labels, samples in self._series.items():
            values = tuple(sample for sample in samples if since <= sample[0] <= until)
            if values:
                own = dict(labels)
                found.append(RawSeries(name=own.pop("__name__"), labels=own, values=values))
        return found

    def _scrape_engine(self, engine: Engine) -> None:
        for at in self._times(engine.offset):
            labels = {"job": "engine", "instance": engine.name, "region": "eu-west-1", "pod": engine.name}
            labels |= {"role": engine.role(at), "version": engine.version}
            alive = engine.started <= at < engine.ended
            self._add(UP, labels, at, float(alive))
            if not alive:
                continue
            if self.knows_starts:
                self._add(PROCESS_START, labels, at, engine.started)
            times = [ttft for ended, ttft in engine.requests if engine.started < ended <= at]
            for name, tokens in zip(("hits", "queries"), engine.cached, strict=True):
                if engine.cached[1]:
                    self._add(f"vllm:prefix_cache_{name}_total", labels, at, float(tokens * len(times)))
            for edge in engine.edges:
                bucket = labels | {BUCKET_EDGE: str(edge).replace("inf", "+Inf"), "model_name": "m"}
                self._add(TTFT + BUCKET, bucket, at, float(sum(t <= edge for t in times)))

    def _scrape_proxy(self, proxy: Proxy) -> None:
        for at in self._times(0.5):
            labels = {"job": "proxy", "instance": proxy.name, "region": "eu-west-1"}
            self._add(UP, labels, at, 1.0)
            of_arm = labels | {"role": proxy.role, "version": proxy.version}
            self._add(str(BY_PROXY.cut), of_arm, at, float(sum(when <= at for when in proxy.torn)))
            self._add(str(BY_PROXY.timeouts), of_arm, at, 0.0)
            for code in {code for when, code in proxy.requests if when <= at}:
                count = sum(when <= at and was == code for when, was in proxy.requests)
                self._add(BY_PROXY.metric, of_arm | {BY_PROXY.status: str(code)}, at, float(count))

    def _times(self, offset: float) -> list[float]:
        return [step * self.interval + offset for step in range(int(self.until / self.interval))]

    def _add(self, name: str, labels: dict[str, str], at: float, value: float) -> None:
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self._series.setdefault(key, []).append((at, value))


def _is_of(series: RawSeries, key: ArmKey) -> bool:
    return all(series.labels.get(name) == value for name, value in key.model_dump().items()) and series.name != UP


PAST_SECONDS = 1800.0
LASTS_SECONDS = 3600.0

Numbers = NDArray[np.float64]
Answered = tuple[Numbers, Numbers]
"""Of an arm's requests, in order: when each ended, and its TTFT in seconds."""
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
    lost: float = 0.0
    """Of the copies, never made."""
    settles_within: timedelta = timedelta(seconds=10)
    seed: int = 0
    windows: list[tuple[datetime, datetime]] = field(default_factory=list)
    _kept: dict[tuple[ArmName, tuple[Shares, ...]], Answered] = field(default_factory=dict)

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`."""
        self.windows.append((since, until))
        first, last = since.timestamp() - LOOKBACK_SECONDS, until.timestamp()
        arms = {ArmName.STABLE: (stable, self.stable_phase), ArmName.CANARY: (canary, self.canary_phase)}
        times = {arm: self._scrapes(phase, first, last) for arm, (_, phase) in arms.items()}
        targets = Targets(
            [(self._labels(arm), [(at, 1.0) for at in times[arm]]) for arm in arms],
            [(self._labels(arm), [(at, self._started(arm)) for at in times[arm]]) for arm in arms],
            lookback_seconds=LOOKBACK_SECONDS,
        )
        scraped = [
            ArmScrapes(arm=arm, key=key, series=list(self._series(arm, times[arm]))) for arm, (key, _) in arms.items()
        ]
        window = ScrapeWindow(since=since.timestamp(), until=last, targets=targets)
        return batch_of(scraped, window, named_by([MetricSource(preset=PresetName.VLLM)], service=""))

    def _scrapes(self, phase: float, first: float, last: float) -> list[float]:
        begin, end = math.ceil((first - phase) / self.interval), math.floor((last - phase) / self.interval)
        return [number * self.interval + phase for number in range(begin, end + 1)]

    def _series(self, arm: ArmName, at: Sequence[float]) -> Iterator[RawSeries]:
        labels = self._labels(arm)
        ended, times = self._answered(arm)
        of_users = {"handler": "/v1/chat/completions", "method": "POST", "status": "2xx"}
        yield self._counter("http_requests_total", labels | of_users, arm, at, ended)
        for edge in (*VLLM_EDGES, float("inf")):
            bucket = labels | {"le": "+Inf" if np.isinf(edge) else str(edge)}
            yield self._counter(TTFT + BUCKET, bucket, arm, at, ended[times <= edge])

    def _counter(
        self, name: str, labels: dict[str, str], arm: ArmName, at: Sequence[float], ended: Numbers
    ) -> RawSeries:
        began = np.searchsorted(ended, self._started(arm), side="right")
        counts = np.searchsorted(ended, at, side="right") - began
        return RawSeries(name=name, labels=labels, values=tuple(zip(at, counts.astype(float).tolist(), strict=True)))

    def _answered(self, arm: ArmName) -> Answered:
        """As `_told`, once for each change of the shares."""
        known = (arm, tuple(self.shares()))
        if known not in self._kept:
            self._kept[known] = self._told(arm)
        return self._kept[known]

    def _told(self, arm: ArmName) -> Answered:
        at, draw, copied, times = self._drawn
        weight, mirror = self._shares_at(at)
        on_canary = draw < weight
        copies = (draw < mirror) & (copied >= self.lost)
        mine = ~on_canary if arm is ArmName.STABLE else on_canary | copies
        ended = at + times
        order = np.argsort(ended[mine], kind="stable")
        return ended[mine][order], times[mine][order]

    @cached_property
    def _drawn(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        rng = np.random.default_rng(self.seed)
        count = int((PAST_SECONDS + LASTS_SECONDS) * self.per_second)
        at = self.start - PAST_SECONDS + np.arange(count) / self.per_second
        return at, rng.random(count), rng.random(count), rng.lognormal(np.log(0.2), 0.5, count)

    def _shares_at(self, at: Numbers) -> tuple[Numbers, Numbers]:
        known = [(-np.inf, 0, 0), *self.shares()]
        which = np.searchsorted([begin for begin, _, _ in known], at, side="right") - 1
        table = np.array([(weight / 100, mirror / 100) for _, weight, mirror in known])
        return table[which, 0], table[which, 1]

    def _started(self, arm: ArmName) -> float:
        return self.start - (2 * PAST_SECONDS if arm is ArmName.STABLE else 60.0)

    def _labels(self, arm: ArmName) -> dict[str, str]:
        return {"job": "engines", "instance": str(arm), "pod": str(arm), "region": "eu-west-1"}
