"""Workloads: what a healthy or a worse canary and its stable arm do, look by look, reproducible by seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from benchmarks.canary_simulation.load import ALIKE, LOOK_SECONDS, Climate, PodNoise, Wander, Weather
from benchmarks.canary_simulation.samples import Arm, Array, Integers, Look, Samples

TTFT_LOG_MEDIAN, TTFT_SD = np.log(0.12), 0.8
QUEUE_LOG_FACTOR = np.log(7.5)
"""How much longer the first token of a queued request takes."""
ITL_LOG_MEDIAN, ITL_SD, ITL_LOAD = np.log(0.03), 0.35, 0.5
JUDGE_MEAN, JUDGE_CONCENTRATION = 0.75, 2.0
"""Of a beta distribution: standard deviation 0.25."""
TAIL_FROM = 0.8
"""Quantile above which a tail regression acts."""
SLOW_LOG_FACTOR = np.log(10.0)
MISS_LOG_FACTOR = np.log(3.0)
"""How much longer the first token takes where the cache does not have the prompt."""
PREFIXES = 2000
"""That users' prompts begin with, of Zipf's law: an engine has those in its cache that it was asked before."""
POPULARITY = 1 / np.arange(1, PREFIXES + 1) / np.sum(1 / np.arange(1, PREFIXES + 1))


def warmth(requests: Array) -> Array:
    """The share of prompts whose beginning was among so many requests before; 1 after very many."""
    served = np.geomspace(1, 1e6, 200)
    return np.interp(requests, served, 1 - POPULARITY @ (1 - POPULARITY[:, None]) ** served)


@dataclass(frozen=True)
class Traffic:
    """How much both arms see, and for how long."""

    rate: float
    """Requests per second of all users, on average."""
    looks: int
    shares: tuple[float, ...] = (0.05,)
    """Of the canary; stages of equal length."""
    judged: float = 10.0
    """Answers of each arm that a judge scores in one look."""
    queued: float = 0.005
    """Share of requests that wait in a queue at average load: how heavy the tail is."""
    noise: PodNoise = ALIKE
    cached: float = 0.0
    """Share of prompts that a warm cache has; the canary's is empty when it gets its first request."""
    stable_pods: int = 19
    warm_up_looks: int = 180
    """Looks at the stable arm alone, before the canary gets traffic."""

    def lasting(self, looks: int) -> Traffic:
        """The same for so many looks."""
        return replace(self, looks=looks)

    def share(self, look: int) -> float:
        """Of the canary, in a look counted from its first."""
        if look < 0:
            return 0.0
        return self.shares[look * len(self.shares) // self.looks]


@dataclass(frozen=True)
class Regression:
    """How the canary is worse than the stable arm; the default is not at all."""

    ttft_factor: float = 1.0
    tail_factor: float = 1.0
    """On the 95th percentile of TTFT; the fastest 80 % are as before."""
    slow_share: float = 0.0
    """Of requests whose first token takes ten times as long."""
    error_factor: float = 1.0
    error_added: float = 0.0
    judge_drop: float = 0.0
    onset_seconds: float = 0.0
    """When it begins."""


HEALTHY = Regression()


def ttft_quantile(share: float, queued: float) -> float:
    """Ln of a quantile of TTFT without drift."""

    def excess(log_seconds: float) -> float:
        z = (log_seconds - TTFT_LOG_MEDIAN) / TTFT_SD
        waiting = (log_seconds - TTFT_LOG_MEDIAN - QUEUE_LOG_FACTOR) / TTFT_SD
        return float((1 - queued) * ndtr(z) + queued * ndtr(waiting) - share)

    return float(brentq(excess, -10, 10))


class Workload:
    """Many deliveries of one kind, side by side."""

    def __init__(self, traffic: Traffic, regression: Regression, deliveries: int, seed: int) -> None:
        self.traffic, self.deliveries = traffic, deliveries
        self._regression = regression
        self._rng = np.random.Generator(np.random.SFC64(seed))
        self._climate = Climate(self._rng, deliveries, traffic.queued)
        memory = traffic.noise.memory_seconds
        self._pods = Wander(self._rng, (deliveries, traffic.stable_pods + 1), traffic.noise.sd, memory)
        self._judged = 0.0
        self._served = np.zeros(deliveries)
        """By the canary."""
        self._bend = ttft_quantile(TAIL_FROM, traffic.queued)
        self._stretch = 1 + np.log(regression.tail_factor) / (ttft_quantile(0.95, traffic.queued) - self._bend)

    def looks(self) -> Iterator[Look]:
        """Every look in order, those of the warm-up with negative numbers; the same seed gives the same."""
        for index in range(-self.traffic.warm_up_looks, self.traffic.looks):
            seconds = (index + 1) * LOOK_SECONDS
            worse = self._regression if seconds > self._regression.onset_seconds else HEALTHY
            weather, share = self._climate.step(seconds), self.traffic.share(index)
            pods = self._pods.step()
            stable = self._arm(weather, 1 - share, pods[:, 1:], HEALTHY, np.ones(self.deliveries))
            canary = self._arm(weather, share, pods[:, :1], worse, warmth(self._served))
            self._served = self._served + canary.requests.sum(axis=1)
            self._judged += self.traffic.judged
            scored, self._judged = int(self._judged), self._judged % 1
            scored = scored if share else 0
            yield Look(
                index=index,
                seconds=seconds,
                share=share,
                stable=stable,
                canary=canary,
                stable_scores=self._scores(weather, 0.0, scored),
                canary_scores=self._scores(weather, worse.judge_drop, scored),
                log_load=weather.log_latency,
                error_rate=weather.error_rate,
            )

    def _arm(self, weather: Weather, share: float, pod_noise: Array, worse: Regression, warm: Array) -> Arm:
        pods = pod_noise.shape[1]
        each = self.traffic.rate * LOOK_SECONDS * share / pods * np.exp(weather.log_traffic)
        requests = self._rng.poisson(np.broadcast_to(each[:, None], pod_noise.shape))
        error_rate = np.minimum(weather.error_rate * worse.error_factor + worse.error_added, 1.0)
        errors = self._rng.binomial(requests, error_rate[:, None])
        answered = requests - errors
        owner = np.repeat(np.arange(answered.size, dtype=np.int32), answered.ravel())
        ttft = self._ttft(weather, pod_noise, worse, answered)
        hits = np.zeros(self.deliveries)
        if self.traffic.cached:
            hit = self._rng.random(ttft.size) < np.repeat(self.traffic.cached * warm, answered.sum(axis=1))
            ttft += ~hit * np.float32(MISS_LOG_FACTOR)
            hits = np.bincount(owner // pods, hit, self.deliveries)
        itl = self._normal(ITL_LOG_MEDIAN + ITL_LOAD * weather.log_latency[:, None] + pod_noise, ITL_SD, answered)
        return Arm(
            requests=requests,
            errors=errors,
            ttft=Samples(ttft, owner, self.deliveries, pods),
            itl=Samples(itl, owner, self.deliveries, pods),
            cached=np.stack([hits, answered.sum(axis=1)], axis=-1),
        )

    def _normal(self, center: Array, sd: float, times: Integers) -> NDArray[np.float32]:
        values = self._rng.standard_normal(int(times.sum()), dtype=np.float32)
        values *= np.float32(sd)
        values += np.repeat(center.astype(np.float32).ravel(), times.ravel())
        return values

    def _ttft(self, weather: Weather, pod_noise: Array, worse: Regression, times: Integers) -> NDArray[np.float32]:
        values = self._normal(np.full(times.shape, TTFT_LOG_MEDIAN), TTFT_SD, times)
        luck = self._rng.random(values.size, dtype=np.float32)
        queued = np.repeat(weather.queued.astype(np.float32), times.sum(axis=1))
        values += (luck < queued) * np.float32(QUEUE_LOG_FACTOR)
        if worse.tail_factor != 1.0:
            values += np.maximum(values - np.float32(self._bend), 0) * np.float32(self._stretch - 1)
        if worse.slow_share:
            values += (luck > 1 - worse.slow_share) * np.float32(SLOW_LOG_FACTOR)
        moved = weather.log_latency[:, None] + pod_noise + np.log(worse.ttft_factor)
        values += np.repeat(moved.astype(np.float32).ravel(), times.ravel())
        return values

    def _scores(self, weather: Weather, drop: float, scored: int) -> Array:
        mean = (JUDGE_MEAN + weather.judge_shift - drop)[:, None] * JUDGE_CONCENTRATION
        return self._rng.beta(mean, JUDGE_CONCENTRATION - mean, (self.deliveries, scored))
