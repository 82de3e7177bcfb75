"""Asks whether the canary is slower than the stable arm beside it, of requests and of pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.evalues.exchange import Array
from gates.evalues.grid import sample_edges
from gates.evalues.paired import Later
from gates.evalues.slower import Slower
from gates.evidence import SHORTEST_SECONDS, Arm, Batch, PairedReply
from gates.questions.base import Question, as_time
from gates.questions.histogram import PodSlots, UnfitTimes, counted, grid_of, times_of
from gates.spec import LatencyGate, LatencyMetric


class TimesQuestion(Question):
    """Requests of both arms in the same scrapes, as samples or buckets."""

    worse = "that it is slower than tolerated"
    process: Slower | None = None

    def __init__(self, gate: LatencyGate, *, temper: bool) -> None:
        """Settings as the spec has them."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._gate, self._temper = gate, temper
        self._edges: Array = sample_edges()
        self._slots = PodSlots()
        self._seen: dict[Arm, Array] = {}

    def take(self, batch: Batch, seconds: float) -> None:
        """As `Question`; a batch whose buckets do not fit gives no evidence."""
        metric = self._gate.metric
        self.missing = batch.missing.get(str(metric), "")
        found = {pod: times_of(pod, metric) for pod in batch.arms}
        try:
            process = self._begun(grid_of(found.values()))
            if process is None:
                return
            counts = {pod: counted(times, self._edges) for pod, times in found.items() if times}
        except UnfitTimes as unfit:
            self.missing = str(unfit)
            return
        canaries = [each for pod, each in counts.items() if pod.arm is Arm.CANARY]
        stable, reused = self._slots.place({pod.pod: each for pod, each in counts.items() if pod.arm is Arm.STABLE})
        for slot in reused:
            process.forget_pod(slot)
        stable = stable if stable.shape[-1] == len(self._edges) + 1 else np.zeros((len(stable), len(self._edges) + 1))
        canary = np.sum(canaries, axis=0) if canaries else np.zeros(len(self._edges) + 1)
        self._note(canary, stable.sum(axis=0))
        if canaries:
            process.feed(canary, stable, seconds, canary_pods=len(canaries))
        else:
            process.learn(stable, seconds)

    def restart(self) -> None:
        """As `Question`; what is described is counted anew too, because traffic shares changed."""
        self._seen.clear()
        if self.process:
            self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return self._count(Arm.CANARY) if self._count(Arm.STABLE) else 0

    def describe(self) -> str:
        metric, quantile = self._gate.metric.upper(), f"p{self._gate.quantile * 100:g}"
        for arm in (Arm.CANARY, Arm.STABLE):
            if not self._count(arm):
                reason = f": {self.missing}" if self.missing else ""
                return f"no {metric} of {'the canary' if arm is Arm.CANARY else 'stable'}{reason}"
        canary, stable = self._quantile(Arm.CANARY), self._quantile(Arm.STABLE)
        return (
            f"canary {metric} {quantile} is {as_time(canary)} against {as_time(stable)} on stable "
            f"({(canary / stable - 1) * 100:+z.0f} %, allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        arms = {str(arm): arm for arm in (Arm.CANARY, Arm.STABLE)}
        name = f"{self._gate.metric}_p{self._gate.quantile * 100:g}"
        times = {f"{name}_{text}_seconds": self._quantile(arm) for text, arm in arms.items() if self._count(arm)}
        counts = {f"{text}_requests": float(self._count(arm)) for text, arm in arms.items()}
        effect = float(self.process.design_effect.max()) if self.process else 1.0
        return times | counts | {"design_effect": effect}

    def _begun(self, edges: Array | None) -> Slower | None:
        """The process, once there are times that say on which grid."""
        if self.process is None and edges is not None:
            gate, self._edges = self._gate, edges
            self.process = Slower(
                edges,
                quantile=gate.quantile,
                max_increase=gate.max_increase,
                tolerance=gate.tolerance,
                temper=self._temper,
            )
        return self.process

    def _note(self, canary: Array, stable: Array) -> None:
        for arm, counts in ((Arm.CANARY, canary), (Arm.STABLE, stable)):
            self._seen[arm] = self._seen.get(arm, 0.0) + counts

    def _count(self, arm: Arm) -> int:
        return int(np.sum(self._seen.get(arm, 0.0)))

    def _quantile(self, arm: Arm) -> float:
        """Within its bin evenly spread; beyond the last edge, that edge."""
        reached = np.cumsum(self._seen[arm])
        rank = self._gate.quantile * reached[-1]
        place = int(np.searchsorted(reached, rank * (1 - 1e-12)))
        if place >= len(self._edges):
            return float(self._edges[-1])
        low, below = (self._edges[place - 1], reached[place - 1]) if place else (0.0, 0.0)
        return float(low + (self._edges[place] - low) * (rank - below) / (reached[place] - below))


class PairedTimesQuestion(Question):
    """Pairs: the same prompt in both arms at the same moment, so that difficulty and load cancel."""

    process: Later
    worse = "that it is later than tolerated"
    sample = "pairs"

    def __init__(self, gate: LatencyGate) -> None:
        """Settings as the spec has them; within pairs the margin is of the ratio, not of the quantile."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._gate = gate
        self.process = Later(max_increase=gate.max_increase, tolerance=gate.tolerance)
        self._times: list[tuple[float, float]] = []

    def take(self, batch: Batch, seconds: float) -> None:
        times = [(_time(pair.canary, self._gate.metric), _time(pair.stable, self._gate.metric)) for pair in batch.pairs]
        known = [(canary, stable) for canary, stable in times if canary and stable]
        self._times = (self._times + known)[-MOST_TIMES:]
        if known:
            logs = np.log(known)
            self.process.feed(logs[:, 0] - logs[:, 1], seconds)

    def restart(self) -> None:
        self._times = []
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return len(self._times)

    def describe(self) -> str:
        metric = self._gate.metric.upper()
        if not self._times:
            return f"no pair has a {metric} on both arms"
        canary, stable, ratio = self._middle()
        change = f"{(ratio - 1) * 100:+z.0f} % within {len(self._times):,} pairs"
        return (
            f"canary {metric} is {as_time(canary)} against {as_time(stable)} on stable in the median, "
            f"{change} (allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        if not self._times:
            return {"pairs": 0.0}
        canary, stable, ratio = self._middle()
        name = f"median_{self._gate.metric}"
        return {
            f"{name}_canary_seconds": canary,
            f"{name}_stable_seconds": stable,
            "median_increase_share": ratio - 1,
            "pairs": float(len(self._times)),
        }

    def _middle(self) -> tuple[float, float, float]:
        times = np.asarray(self._times)
        return float(np.median(times[:, 0])), float(np.median(times[:, 1])), float(np.median(times[:, 0] / times[:, 1]))


MOST_TIMES = 10_000
"""Pairs that are kept for the description; evidence needs none of them."""


def _time(reply: PairedReply | None, metric: LatencyMetric) -> float | None:
    if reply is None:
        return None
    seconds = {LatencyMetric.TTFT: reply.ttft, LatencyMetric.ITL: reply.itl, LatencyMetric.E2E: reply.e2e}[metric]
    return None if seconds is None or seconds < SHORTEST_SECONDS else seconds
