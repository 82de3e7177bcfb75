"""What every judge of the simulation is to the run: it is shown looks, and says when it decided."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.canary_simulation.samples import Array

NEVER = np.inf


class Times:
    """Base of all deciders: when, for each delivery, it would first have rolled back, and when promoted.

    Both are kept apart: a promotion after a rollback still tells what the decider would have believed.
    """

    def __init__(self, name: str, deliveries: int) -> None:
        self.name = name
        self.rollback_seconds: Array = np.full(deliveries, NEVER)
        self.accept_seconds: Array = np.full(deliveries, NEVER)

    def roll_back(self, chosen: NDArray[np.bool_], seconds: float) -> None:
        self.rollback_seconds[chosen & np.isinf(self.rollback_seconds)] = seconds

    def accept(self, chosen: NDArray[np.bool_], seconds: float) -> None:
        self.accept_seconds[chosen & np.isinf(self.accept_seconds)] = seconds

    @property
    def undecided(self) -> NDArray[np.bool_]:
        return np.isinf(self.rollback_seconds)
