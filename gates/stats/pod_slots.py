"""Stable pods in the places of an array, so that statistics can tell them apart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.stats.e_process import Array

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
