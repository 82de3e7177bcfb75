"""Asks whether the canary fails more requests than the stable arm beside it.

5xx, missing answers and cut streams are one kind of failure, 4xx another. Users do not know which arm
they reach, so both arms get the same share of bad requests: more 4xx on the canary is its own doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import numpy as np

from gates.evalues.failing import Failing
from gates.evalues.paired import Lower
from gates.evidence import Arm, Batch, PodEvidence
from gates.questions.base import Question
from gates.questions.histogram import PodSlots, pods_of
from gates.spec import ErrorsGate

Kind = Literal["failed", "refused"]


class FailuresQuestion(Question):
    """Counts of both arms in the same scrapes."""

    process: Failing

    def __init__(self, gate: ErrorsGate, kind: Kind, *, temper: bool) -> None:
        """`failed` and `refused` are two questions: a canary that refuses must not hide behind a stable that fails."""
        super().__init__(kind, needed=gate.min_requests)
        self.worse = f"that it {'fails' if kind == 'failed' else 'refuses'} more often than tolerated"
        self._gate, self._bad_kind = gate, kind
        self.process = Failing(max_increase=gate.max_increase, tolerance=gate.tolerance, temper=temper)
        self._slots = PodSlots()
        self._requests: Counter[Arm] = Counter()
        self._bad: Counter[Arm] = Counter()

    def take(self, batch: Batch, seconds: float) -> None:
        self.missing = batch.missing.get("requests", "")
        stable_pods = {pod.pod: self._counts(pod) for pod in pods_of(batch, Arm.STABLE)}
        stable, reused = self._slots.place(stable_pods)
        for slot in reused:
            self.process.forget_pod(slot)
        stable = stable if stable_pods else np.zeros((len(stable), 2))
        canaries = [self._counts(pod) for pod in pods_of(batch, Arm.CANARY) if pod.requests]
        for pod in batch.arms:
            self._requests[pod.arm] += pod.requests
            self._bad[pod.arm] += self._bad_of(pod)
        if canaries:
            self.process.feed(np.sum(canaries, axis=0), stable, seconds, canary_pods=len(canaries))
        else:
            self.process.learn(stable, seconds)

    def restart(self) -> None:
        self._requests.clear()
        self._bad.clear()
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return self._requests[Arm.CANARY] if self._requests[Arm.STABLE] else 0

    def describe(self) -> str:
        for arm in (Arm.CANARY, Arm.STABLE):
            if not self._requests[arm]:
                reason = f": {self.missing}" if self.missing else ""
                return f"no requests of {'the canary' if arm is Arm.CANARY else 'stable'}{reason}"
        increase = self._share(Arm.CANARY) - self._share(Arm.STABLE)
        return (
            f"canary {self.kind} {self._of(Arm.CANARY)} against {self._of(Arm.STABLE)} on stable "
            f"({increase * 100:+z.1f} pp, allowed {self._gate.max_increase * 100:+g} pp)"
        )

    def numbers(self) -> Mapping[str, float]:
        arms = (Arm.CANARY, Arm.STABLE)
        counts = {f"{arm}_requests": float(self._requests[arm]) for arm in arms}
        bad = {f"{arm}_{self.kind}_requests": float(self._bad[arm]) for arm in arms}
        return counts | bad | {"design_effect": float(self.process.design_effect.max())}

    def _bad_of(self, pod: PodEvidence) -> int:
        return pod.errors if self._bad_kind == "failed" else pod.refused

    def _counts(self, pod: PodEvidence) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        bad = self._bad_of(pod)
        return np.asarray([pod.requests - bad, bad], dtype=np.float64)

    def _share(self, arm: Arm) -> float:
        return self._bad[arm] / self._requests[arm]

    def _of(self, arm: Arm) -> str:
        return f"{self._bad[arm]:,} of {self._requests[arm]:,} ({self._share(arm):.1%})"


class PairedFailuresQuestion(Question):
    """Prompts that went to both arms: how often only one of them answered."""

    process: Lower
    worse = "that it fails more often than tolerated"
    sample = "pairs"

    def __init__(self, gate: ErrorsGate) -> None:
        """Settings as the spec has them."""
        super().__init__("failed", needed=gate.min_requests)
        self._gate = gate
        self.process = Lower(max_drop=gate.max_increase, tolerance=gate.tolerance)
        self._pairs = self._canary = self._stable = 0

    def take(self, batch: Batch, seconds: float) -> None:
        failed = [(pair.canary is None, pair.stable is None) for pair in batch.pairs]
        self._pairs += len(failed)
        self._canary += sum(canary for canary, _ in failed)
        self._stable += sum(stable for _, stable in failed)
        # Where nobody answered, the way to both may be broken: that says nothing of either.
        told = [float(canary) - float(stable) for canary, stable in failed if not (canary and stable)]
        if told:
            self.process.feed(np.asarray(told), seconds)

    def restart(self) -> None:
        self._pairs = self._canary = self._stable = 0
        self.process.restart_acceptance()

    @property
    def log_fine(self) -> float:
        # Beside a stable arm that never answered every canary would look well.
        return float(self.process.log_fine) if self._stable < self._pairs else 0.0

    @property
    def seen(self) -> int:
        return self._pairs

    def describe(self) -> str:
        if not self._pairs:
            return "no pair was sent"
        return (
            f"of {self._pairs:,} prompts that went to both arms the canary left {self._canary:,} without an answer, "
            f"stable {self._stable:,} (allowed {self._gate.max_increase * 100:+g} pp)"
        )

    def numbers(self) -> Mapping[str, float]:
        counts = {"pairs": self._pairs, "canary_failed_requests": self._canary, "stable_failed_requests": self._stable}
        return {name: float(count) for name, count in counts.items()}
