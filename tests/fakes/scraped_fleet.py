"""Engines and a proxy as Prometheus sees them: what they counted, scrape by scrape, with restarts and new roles."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gates.evidence import Arm, Batch
from gates.model import ArmKey
from gates.scraped.batch import batch_of
from gates.scraped.conventions import (
    BUCKET,
    BUCKET_EDGE,
    HISTOGRAMS,
    PROCESS_START,
    RESPONSE_CODE,
    RESPONSES,
    TIMEOUTS,
    TORN,
    UP,
)
from gates.scraped.histograms import Bucket
from gates.scraped.series import ArmScrapes, RawSeries, Window
from gates.scraped.targets import Targets
from gates.spec import LatencyMetric

EDGES = (0.1, 0.5, 1.0, float("inf"))
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
            for arm, key in ((Arm.STABLE, stable), (Arm.CANARY, canary))
        ]
        return batch_of(arms, Window(since=since, until=until, targets=targets))

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
            for edge in engine.edges:
                bucket = labels | {BUCKET_EDGE: str(edge).replace("inf", "+Inf"), "model_name": "m"}
                self._add(HISTOGRAMS[LatencyMetric.TTFT] + BUCKET, bucket, at, float(sum(t <= edge for t in times)))

    def _scrape_proxy(self, proxy: Proxy) -> None:
        for at in self._times(0.5):
            labels = {"job": "proxy", "instance": proxy.name, "region": "eu-west-1"}
            self._add(UP, labels, at, 1.0)
            of_arm = labels | {"role": proxy.role, "version": proxy.version}
            self._add(TORN, of_arm, at, float(sum(when <= at for when in proxy.torn)))
            self._add(TIMEOUTS, of_arm, at, 0.0)
            for code in {code for when, code in proxy.requests if when <= at}:
                count = sum(when <= at and was == code for when, was in proxy.requests)
                self._add(RESPONSES, of_arm | {RESPONSE_CODE: str(code)}, at, float(count))

    def _times(self, offset: float) -> list[float]:
        return [step * self.interval + offset for step in range(int(self.until / self.interval))]

    def _add(self, name: str, labels: dict[str, str], at: float, value: float) -> None:
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self._series.setdefault(key, []).append((at, value))


def as_native(times: Iterable[float], schema: int) -> tuple[Bucket, ...]:
    """Buckets as Prometheus' API gives them for these times, empty ones left out."""
    filled = Counter(math.ceil(math.log2(seconds) * 2**schema) for seconds in times)
    width = 2.0**-schema
    return tuple((0, 2 ** ((i - 1) * width), 2 ** (i * width), float(count)) for i, count in sorted(filled.items()))


def batch_of_native(scrapes: Sequence[tuple[float, Sequence[float]]], since: float, until: float) -> Batch:
    """Of one canary that had measured these TTFTs at each scrape, in a native histogram."""
    labels = {"job": "engine", "instance": "e", "region": "eu-west-1", "role": "canary", "version": "7"}
    samples = tuple((at, as_native(times, 3)) for at, times in scrapes)
    series = [RawSeries(name=HISTOGRAMS[LatencyMetric.TTFT], labels=labels, histograms=samples)]
    canary = ArmKey(region="eu-west-1", role="canary", version="7")
    targets = Targets([(labels, [(at, 1.0) for at, _ in scrapes])], [], lookback_seconds=LOOKBACK_SECONDS)
    arms = [ArmScrapes(arm=Arm.CANARY, key=canary, series=series)]
    return batch_of(arms, Window(since=since, until=until, targets=targets))


def _is_of(series: RawSeries, key: ArmKey) -> bool:
    return all(series.labels.get(name) == value for name, value in key.model_dump().items()) and series.name != UP
