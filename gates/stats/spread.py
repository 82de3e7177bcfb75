"""How much more than chance the stable pods differ: the design effect by which evidence is tempered.

Pods differ by nature: neighbours on the machine, cache, clock. Requests of one pod are then no independent
draws, and a canary on one unlucky pod looks worse with certainty. The spread between stable pods, which
all run the same version, is what a pod may differ without being worse.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy

from gates.stats.e_process import Array

BLOCKS_SECONDS = (30.0, 60.0, 180.0, 600.0, np.inf)
"""Noise of half a minute shows within short blocks, a pod that is always slower only over the whole history."""
MOST_CARRIED = 10.0
"""How many times as many requests as a stable pod's the canary's pod may have before nobody has seen the like."""
CONFIDENCE = 0.9
PRIOR_DEGREES = 6.0
"""How many degrees of freedom "pods are alike" is worth; without it two pods alone could say anything."""


class Spread:
    """Between-pod variance of mean scores over what independent requests would show, per alternative."""

    def __init__(self, alternatives: int, leading: tuple[int, ...] = ()) -> None:
        """Scores are ln h of each of so many alternatives; `leading` is how many run side by side."""
        self._blocks = [_Blocks(seconds, alternatives, leading) for seconds in BLOCKS_SECONDS]

    def feed(self, log_h: Array, pods: Array, seconds: float) -> None:
        """One scrape: weights (..., J, K) and the stable pods' counts (..., P, K); P may grow, not shrink."""
        sums = np.einsum("...pk,...jk->...pj", pods, log_h)
        squares = np.einsum("...pk,...jk->...j", pods, log_h**2)
        for block in self._blocks:
            block.feed(sums, squares, pods.sum(axis=-1), seconds)

    def forget(self, slot: int) -> None:
        """The pod in that slot is gone, and another one takes it."""
        for block in self._blocks:
            block.forget(slot)

    def effect(self, canary_per_pod: Array) -> Array:
        """The design effect (..., J) for a canary with so many requests on each of its pods: at least 1.

        Variance grows by 1 + (n - 1) rho for n requests of one pod, so what stable pods show at their n is
        carried over to the canary's (Kish 1965). Each length of block at its own n: noise that passes is as
        strong in the canary's first scrapes as in an hour, and the whole history would hide it from them.
        """
        whole = self._blocks[-1]
        effects = []
        for block in self._blocks:
            ratio = canary_per_pod / np.maximum(whole.per_pod() * block.part_of(whole), 1.0)
            least, most = float(block is self._blocks[0]), MOST_CARRIED if block is whole else 1.0
            effects.append(1 + np.maximum(block.upper() - 1, 0) * np.clip(ratio, least, most)[..., None])
        return np.asarray(np.maximum.reduce(effects))


class _Blocks:
    """The same over blocks of one length: finished blocks, and the one under way."""

    def __init__(self, seconds: float, alternatives: int, leading: tuple[int, ...]) -> None:
        self._seconds = seconds
        self._age = 0.0
        self._ratio = np.zeros((*leading, alternatives))
        self._degrees = np.zeros(leading)
        self._sums = np.zeros((*leading, 0, alternatives))
        self._counts = np.zeros((*leading, 0))
        self._squares = np.zeros((*leading, alternatives))

    def feed(self, sums: Array, squares: Array, counts: Array, seconds: float) -> None:
        self._sums = _grown(self._sums, sums.shape, axis=-2) + sums
        self._counts = _grown(self._counts, counts.shape, axis=-1) + counts
        self._squares = self._squares + squares
        self._age += seconds
        if self._age >= self._seconds:
            ratio, degrees = self._current()
            self._ratio, self._degrees = self._ratio + ratio, self._degrees + degrees
            self._sums, self._counts = np.zeros_like(self._sums), np.zeros_like(self._counts)
            self._squares, self._age = np.zeros_like(self._squares), 0.0

    def forget(self, slot: int) -> None:
        self._sums[..., slot, :] = 0
        self._counts[..., slot] = 0

    def part_of(self, whole: _Blocks) -> float:
        """How much of the whole history one block is."""
        return min(self._seconds / whole._age, 1.0) if whole._age else 1.0

    def per_pod(self) -> Array:
        """Requests of an average pod that has any."""
        return np.asarray(self._counts.sum(axis=-1) / np.maximum((self._counts > 0).sum(axis=-1), 1))

    def upper(self) -> Array:
        """Upper confidence bound of the design effect, (..., J); 1 while there are no two pods to compare."""
        ratio, degrees = self._current()
        total = (self._degrees + degrees)[..., None]
        bound = (PRIOR_DEGREES + self._ratio + ratio) / scipy.special.chdtri(PRIOR_DEGREES + total, CONFIDENCE)
        return np.asarray(np.where(total > 0, bound, 1.0))

    def _current(self) -> tuple[Array, Array]:
        """Degrees of freedom times the variance ratio, and the degrees, of the block under way."""
        counts = self._counts[..., None]
        all_counts = np.maximum(self._counts.sum(axis=-1), 1.0)[..., None]
        mean = self._sums.sum(axis=-2) / all_counts
        within = np.maximum(self._squares / all_counts - mean**2, 0.0)
        means = self._sums / np.maximum(counts, 1.0)
        between = (counts * (means - mean[..., None, :]) ** 2).sum(axis=-2)
        degrees = np.maximum((self._counts > 0).sum(axis=-1) - 1.0, 0.0)
        known = (within > 1e-12) & (degrees > 0)[..., None]
        return np.where(known, between / np.where(known, within, 1.0), degrees[..., None]), degrees


def _grown(array: Array, shape: tuple[int, ...], *, axis: int) -> Array:
    """`array` with room for pods that were not there before."""
    missing = shape[axis] - array.shape[axis]
    if not missing:
        return array
    padding = [(0, 0)] * array.ndim
    padding[axis] = (0, missing)
    return np.pad(array, padding)


MOST_PODS = 64
"""Stable pods that are told apart; a new one takes the place of the one seen longest ago. More at once share a slot."""


class PodSlots:
    """Gives each stable pod a place of its own in an array, for as long as there is room."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}

    def place(self, pods: Mapping[str, Array]) -> tuple[Array, list[int]]:
        """Counts (P, bins) of the pods in their slots, and the slots that changed hands."""
        for name in pods:
            if name in self._slots:
                # Moved to the end: the first in the dictionary is the one seen longest ago.
                self._slots[name] = self._slots.pop(name)
        taken_over = [self._take_slot(name, pods) for name in pods if name not in self._slots]
        width = next(iter(pods.values())).shape[-1] if pods else 1
        counts = np.zeros((max(self._slots.values(), default=0) + 1, width))
        for name, each in pods.items():
            counts[self._slots.get(name, MOST_PODS - 1)] += each
        return counts, [slot for slot in taken_over if slot is not None]

    def _take_slot(self, name: str, present: Mapping[str, Array]) -> int | None:
        """A slot for a new pod, if one is free; the answer is that slot when another pod had it before."""
        if len(self._slots) < MOST_PODS:
            self._slots[name] = len(self._slots)
            return None
        oldest = next(iter(self._slots))
        if oldest in present:
            return None
        self._slots[name] = self._slots.pop(oldest)
        return self._slots[name]
