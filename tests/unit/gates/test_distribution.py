from __future__ import annotations

import math

import pytest

from gates.distribution import Distribution

EDGES = [0.1, 0.2, 0.4, math.inf]


def test_a_quantile_of_samples_is_the_sample_of_that_rank() -> None:
    hundred = Distribution.from_samples(number / 100 for number in range(100, 0, -1))
    assert hundred.count == 100
    assert (hundred.quantile(0.95), hundred.quantile(0.5)) == (0.95, 0.5)


def test_a_quantile_of_buckets_lies_within_its_bucket() -> None:
    histogram = Distribution.from_buckets(EDGES, [10, 80, 10, 0])
    assert histogram.quantile(0.5) == pytest.approx(0.15)
    assert histogram.quantile(0.95) == pytest.approx(0.3)


def test_beyond_the_last_edge_the_quantile_is_that_edge() -> None:
    assert Distribution.from_buckets(EDGES, [0, 0, 0, 5]).quantile(0.95) == 0.4


def test_without_requests_there_is_no_quantile() -> None:
    with pytest.raises(ValueError, match="no requests"):
        Distribution.from_samples([]).quantile(0.5)
    assert Distribution.from_samples([]).share_above(0.1) == 0


def test_shares_above_a_latency() -> None:
    assert Distribution.from_samples([0.1, 0.2, 0.3, 0.4]).share_above(0.2) == 0.5
    histogram = Distribution.from_buckets(EDGES, [1, 2, 0, 1])
    assert histogram.share_above(0.15) == pytest.approx(0.5)
    assert histogram.share_above(0.1) == pytest.approx(0.75)
    assert histogram.share_above(9) == pytest.approx(0.25)
    assert histogram.count_above(0.15) == 2


def test_samples_and_their_buckets_agree_within_a_bucket() -> None:
    samples = [number / 1000 for number in range(1, 401)]
    counts = [sum(low < sample <= high for sample in samples) for low, high in zip([0, *EDGES], EDGES, strict=False)]
    raw, binned = Distribution.from_samples(samples), Distribution.from_buckets(EDGES, counts)
    for q in (0.1, 0.5, 0.95):
        assert raw.quantile(q) == pytest.approx(binned.quantile(q), abs=0.002)
    assert raw.count == binned.count
