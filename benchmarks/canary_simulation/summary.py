"""From first times of many deliveries to the figures of a cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.canary_simulation.samples import Array

Figures = dict[str, float | int | str | None]
CONFIDENCE = 0.95


def upper_bound(events: int, of: int) -> float:
    """Clopper and Pearson's one-sided bound of a chance."""
    return float(beta.ppf(CONFIDENCE, events + 1, of - events)) if events < of else 1.0


def healthy(rollback: Array, accept: Array, oracle_seconds: float) -> Figures:
    """How often a good version went back, and when the others were accepted, also against the oracle."""
    times = _times("accept", np.where(accept < rollback, accept, np.inf))
    return {**_share("false_rollback", np.isfinite(rollback)), **times, **_over_oracle(times, oracle_seconds)}


def regression(rollback: Array, accept: Array, onset_seconds: float, oracle_seconds: float) -> Figures:
    """When a bad version went back, also against the oracle; acceptance is left aside but told."""
    early = rollback <= onset_seconds
    seconds = np.where(early, np.inf, rollback - onset_seconds)
    times = _times("detect", seconds)
    first = round(float(np.mean(accept < rollback)), 4)
    return {**times, **_over_oracle(times, oracle_seconds), "promoted_first": first}


def margin(rollback: Array, accept: Array) -> Figures:
    """How often the margin was taken for surely within; also when a rollback had come first."""
    first = accept < rollback
    return {**_share("false_acceptance", np.isfinite(accept)), **_share("promoted", np.isfinite(accept) & first)}


def _over_oracle(times: Figures, oracle_seconds: float) -> Figures:
    """The same times as multiples of the oracle's; none where it never decides."""
    return {
        f"{name.removesuffix('_seconds')}_over_oracle": round(value / oracle_seconds, 2)
        for name, value in times.items()
        if name.endswith("_seconds") and isinstance(value, float) and np.isfinite(oracle_seconds)
    }


def _share(name: str, happened: NDArray[np.bool_]) -> Figures:
    events, of = int(happened.sum()), int(happened.size)
    return {name: events / of, f"{name}_upper_bound": round(upper_bound(events, of), 5), "deliveries": of}


def _times(name: str, seconds: Array) -> Figures:
    """Median and 80th percentile over all deliveries, those without an end included; None when there is none."""
    median, p80 = (float(np.quantile(seconds, share, method="inverted_cdf")) for share in (0.5, 0.8))
    return {
        f"{name}_share": round(float(np.isfinite(seconds).mean()), 4),
        f"{name}_median_seconds": median if np.isfinite(median) else None,
        f"{name}_p80_seconds": p80 if np.isfinite(p80) else None,
    }
