"""Expected counts of what ends badly, for plans: of requests that fail, and of any other trials."""

from __future__ import annotations

import numpy as np

from gates.stats.binary import FailureProcess
from gates.stats.e_process import Array
from gates.traffic import ArrivalRates, Assumptions, Flow, WholeCounts, evidence_per_request


def expected_failures(
    max_increase: float,
    tolerance: float,
    arrivals: ArrivalRates,
    worse: Array,
    assumed: Assumptions,
    *,
    temper: bool,
) -> Flow:
    """Each canary fails a share `worse` of its requests more often than stable does."""
    rates = np.minimum(assumed.error_rate + worse, 1.0)
    canary = np.stack([1 - rates, rates], axis=-1)
    stable = np.broadcast_to([1 - assumed.error_rate, assumed.error_rate], (len(worse), 1, 2))
    process = FailureProcess(max_increase=max_increase, tolerance=tolerance, temper=False, leading=worse.shape)
    counted = evidence_per_request(arrivals, assumed, temper=temper)
    # Failures are few, and a part of one is none; so they come whole, one after the other.
    whole_canary, whole_stable = WholeCounts(canary.shape), WholeCounts(stable.shape)

    def feed(seconds: float) -> None:
        each = seconds * counted
        came = whole_canary.of(canary * arrivals.canary * each)
        process.feed(came, whole_stable.of(stable * arrivals.stable * each), seconds)

    return Flow(process, feed)
