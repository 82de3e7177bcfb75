"""Classic and native histograms on edges that they share."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from fakes.metrics.scraped import as_native, batch_of_native
from pydantic import ValidationError

from gates.evidence.batch import ArmName, Buckets
from gates.evidence.counters import Bucket, NotCounts, buckets, classic, common_edges, custom_edges, native

INF = math.inf


def test_a_classic_histogram_is_not_cumulated_any_more() -> None:
    found = classic({0.1: [(1, 2), (2, 3)], 0.5: [(1, 2), (2, 7)], INF: [(1, 5), (2, 11)]})
    assert (found.times, found.edges) == ((1, 2), (0.1, 0.5))
    assert found.counts.tolist() == [[2, 0, 3], [3, 4, 4]]


@pytest.mark.parametrize(
    ("by_edge", "said"),
    [
        ({0.1: [(1, 2)], 0.5: [(1, 3)]}, "without an infinite bucket"),
        ({INF: [(1, 2)]}, "without an infinite bucket above others"),
        ({0.1: [(1, 5)], INF: [(1, 3)]}, "less than one below it"),
        ({0.1: [(1, 5)], INF: [(1, 5), (2, 6)]}, "lacks a bucket"),
        ({-1.0: [(1, 5)], INF: [(1, 5)]}, "negative times"),
        ({0.1: [(1, math.nan)], INF: [(1, 5)]}, "no number"),
    ],
)
def test_what_is_no_classic_histogram_is_told(by_edge: dict[float, list[tuple[float, float]]], said: str) -> None:
    with pytest.raises(NotCounts, match=said):
        classic(by_edge)


@pytest.mark.parametrize("schema", range(9))
def test_a_native_histogram_tells_times_within_its_resolution(schema: int) -> None:
    rng = np.random.default_rng(schema)
    times = rng.lognormal(-1, 1.5, 500)
    found = native([(1.0, as_native(times, schema))])
    per_octave = min(8, 2**schema)
    assert len(found.edges) == 21 * per_octave + 1
    assert found.counts.sum() == 500
    cumulated = np.cumsum(found.counts[0])
    # An edge computed here and one computed by the program differ by a hair, so no time may lie that near.
    assert cumulated[:-1].tolist() == [int((times <= edge).sum()) for edge in found.edges]


def test_samples_of_several_resolutions_are_brought_to_the_coarsest() -> None:
    times = np.random.default_rng(1).lognormal(-1, 1, 100)
    fine, coarse = as_native(times, 6), as_native(times, 1)
    found = native([(1.0, fine), (2.0, coarse)])
    assert found.counts[0].tolist() == found.counts[1].tolist()


def test_what_is_beyond_the_grid_stays_counted_at_its_ends() -> None:
    ends: list[Bucket] = [
        (3, -1e-9, 1e-9, 2),
        (0, 2**-12, 2**-11.9, 3),
        (0, 2.0**12, 2.0**12.1, 4),
        (0, 2.0**12, INF, 5),
    ]
    found = native([(1.0, ends)])
    assert (found.counts[0, 0], found.counts[0, -1], found.counts.sum()) == (5, 9, 14)


@pytest.mark.parametrize(
    ("bucket", "said"),
    [
        ((1, -2.0, -1.0, 1.0), "negative times"),
        ((0, -1.0, -0.5, 1.0), "negative times"),
        ((0, -INF, INF, 1.0), "has no edge"),
        ((0, 1.0, 2.0, 0.5), "no whole number"),
    ],
)
def test_what_is_no_usable_native_histogram_is_told(bucket: Bucket, said: str) -> None:
    with pytest.raises(NotCounts, match=said):
        native([(1.0, (bucket,))])


def test_custom_buckets_are_read_on_the_edges_of_all_filled_ones() -> None:
    early = ((0, -INF, 0.1, 3.0), (0, 0.5, 1.0, 2.0))
    late = ((0, -INF, 0.1, 4.0), (0, 0.1, 0.5, 1.0), (0, 0.5, 1.0, 2.0), (0, 7.0, INF, 1.0))
    samples = [(1.0, early), (2.0, late)]
    edges = custom_edges([samples])
    assert edges == (0.1, 0.5, 1.0, 7.0)
    assert native(samples, edges).counts.tolist() == [[3, 0, 2, 0, 0], [4, 1, 2, 0, 1]]
    with pytest.raises(NotCounts, match="custom buckets are not those of the others"):
        native([(1.0, ((0, 0.1, 1.0, 1.0),))], edges)
    with pytest.raises(NotCounts, match="negative times"):
        native([(1.0, ((0, -INF, -0.1, 1.0),))], edges)
    # Coarser than schema 0, or with a wide bucket around zero, a native one is read in the same way.
    coarse = [(1.0, ((3, -0.1, 0.1, 1.0), (0, 1.0, 4.0, 2.0)))]
    assert native(coarse, custom_edges([coarse])).counts.tolist() == [[1, 0, 2, 0]]
    assert custom_edges([[(1.0, as_native([0.2, 3.0], 3))]]) == ()


def test_more_edges_than_can_be_compared_are_refused() -> None:
    edges = [float(n) for n in range(1, 502)]
    with pytest.raises(NotCounts, match="501 bucket edges, where 500 are compared at most"):
        classic({edge: [(1, 1)] for edge in (*edges, INF)})
    with pytest.raises(NotCounts, match="501 bucket edges"):
        native([(1.0, ())], edges)
    with pytest.raises(ValidationError, match="at most 500"):
        Buckets(edges=tuple(edges), counts=(0,) * 502)


def test_grids_are_reduced_to_what_they_share() -> None:
    common = common_edges([(0.1, 0.25, 0.5, 1.0), (0.1, 0.5, 1.0, 2.0)])
    assert common == (0.1, 0.5, 1.0)
    assert buckets((0.1, 0.25, 0.5, 1.0), [1, 2, 3, 4, 5], common) == Buckets(edges=common, counts=(1, 5, 4, 5))
    assert buckets((0.1, 0.5, 1.0, 2.0), [1, 2, 3, 4, 5], common) == Buckets(edges=common, counts=(1, 2, 3, 9))
    assert common_edges([(0.1,), (0.2,)]) == common_edges([]) == ()


def test_merging_edges_loses_no_request() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        edges = sorted(set(rng.uniform(0, 10, 12).round(2).tolist()))
        counts = rng.integers(0, 9, len(edges) + 1).tolist()
        common = sorted(rng.choice(edges, 4, replace=False).tolist())
        merged = buckets(edges, counts, common)
        for low, high in pairwise((0.0, *common, INF)):
            whole = sum(count for at, count in zip((*edges, INF), counts, strict=True) if low < at <= high)
            assert merged.counts[(*common, INF).index(high)] == whole


def test_native_histograms_are_differenced_like_classic_ones() -> None:
    early, late = [0.2, 0.3], [0.2, 0.3, 0.31, 5.0]
    batch = batch_of_native([(10.0, early), (12.0, late), (14.0, [0.7])], since=11, until=15)
    (pod,) = batch.arms
    assert pod.arm is ArmName.CANARY and isinstance(pod.ttft, Buckets)
    # Two more, and one after a restart.
    assert sum(pod.ttft.counts) == 3


def test_a_native_and_a_classic_arm_meet_on_the_powers_of_two_they_share() -> None:
    grid = native([(1.0, as_native(np.array([0.4]), 3))]).edges
    assert common_edges([grid, (0.1, 0.25, 0.5, 1.0, 2.5)]) == (0.25, 0.5, 1.0)
