"""Load that drifts in both arms together, and pods that are not all alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.canary_simulation.samples import Array

LOOK_SECONDS = 10.0


class Wander:
    """A number that wanders around 0 for ever: Ornstein-Uhlenbeck, started in its long-run distribution."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], sd: float, memory_seconds: float) -> None:
        self._rng, self._sd = rng, sd
        self._keep = np.exp(-LOOK_SECONDS / memory_seconds)
        self.now: Array = sd * rng.standard_normal(shape)

    def step(self) -> Array:
        noise = self._rng.standard_normal(self.now.shape)
        self.now = self._keep * self.now + self._sd * np.sqrt(1 - self._keep**2) * noise
        return self.now


class Episodes:
    """Something that is either going on or not: bursts of users, incidents of a shared backend."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], begins: float, ends: float) -> None:
        """`begins` and `ends` are chances per look."""
        self._rng, self._begins, self._ends = rng, begins, ends
        self.now = rng.random(shape) < begins / (begins + ends)

    def step(self) -> Array:
        draw = self._rng.random(self.now.shape)
        self.now = np.where(self.now, draw >= self._ends, draw < self._begins)
        return self.now.astype(np.float64)


@dataclass(frozen=True)
class Weather:
    """What one look is like for both arms; arrays of (deliveries,)."""

    log_traffic: Array
    """Arrivals relative to the average."""
    log_latency: Array
    queued: Array
    """Share of requests that wait in a queue."""
    error_rate: Array
    judge_shift: Array


class Climate:
    """The weather of many deliveries: a day's rhythm, bursts, slow latency drift, incidents, changing prompts."""

    MEAN_ERROR_RATE = 0.005

    def __init__(self, rng: np.random.Generator, deliveries: int, queued: float) -> None:
        size = (deliveries,)
        self._queued = queued
        self._period = rng.uniform(1200, 5400, size)
        self._phase = rng.uniform(0, 2 * np.pi, size)
        self._traffic, self._bursts = Wander(rng, size, 0.1, 120), Episodes(rng, size, 0.005, 0.08)
        self._latency = Wander(rng, size, 0.15, 300)
        self._errors, self._incidents = Wander(rng, size, 0.4, 300), Episodes(rng, size, 0.003, 0.17)
        self._judge = Wander(rng, size, 0.02, 600)

    def step(self, seconds: float) -> Weather:
        rhythm = 0.3 * np.sin(2 * np.pi * seconds / self._period + self._phase)
        traffic = rhythm + self._traffic.step() + np.log(1.8) * self._bursts.step()
        incident = 1 + 3 * self._incidents.step()
        # exp(sd^2/2) and the share of incidents raise the mean; the division brings it back.
        error_rate = self.MEAN_ERROR_RATE * np.exp(self._errors.step()) * incident / (1.083 * 1.052)
        return Weather(
            log_traffic=traffic,
            log_latency=0.5 * traffic + self._latency.step(),
            queued=np.minimum(self._queued * np.exp(2 * traffic), 0.2),
            error_rate=np.minimum(error_rate, 0.2),
            judge_shift=np.clip(self._judge.step(), -0.06, 0.06),
        )


@dataclass(frozen=True)
class PodNoise:
    """A factor on all times of one pod: what hardware, neighbours and caches do to it."""

    sd: float = 0.0
    """Of its logarithm."""
    memory_seconds: float = 30.0
    """How long it lasts; infinite is a pod that is born slow."""


ALIKE = PodNoise()
