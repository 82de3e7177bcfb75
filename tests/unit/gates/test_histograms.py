"""Histograms on edges that they share."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from gates.evidence.batch import Buckets
from gates.evidence.counters import NotCounts, buckets, classic, common_edges

INF = math.inf


def test_a_classic_histogram_is_not_cumulated_any_more() -> None:
    times, edges, counts = classic({0.1: [(1, 2), (2, 3)], 0.5: [(1, 2), (2, 7)], INF: [(1, 5), (2, 11)]})
    assert (times, edges, counts.tolist()) == ([1, 2], (0.1, 0.5), [[2, 0, 3], [3, 4, 4]])


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


def test_more_edges_than_can_be_compared_are_refused() -> None:
    edges = [float(n) for n in range(1, 502)]
    with pytest.raises(NotCounts, match="501 bucket edges, where 500 are compared at most"):
        classic({edge: [(1, 1)] for edge in (*edges, INF)})
    with pytest.raises(ValidationError, match="at most 500"):
        Buckets(edges=tuple(edges), counts=(0,) * 502)


def test_grids_are_reduced_to_what_they_share() -> None:
    common = common_edges([(0.1, 0.25, 0.5, 1.0), (0.1, 0.5, 1.0, 2.0)])
    assert common == (0.1, 0.5, 1.0)
    assert buckets((0.1, 0.25, 0.5, 1.0), [1, 2, 3, 4, 5], common) == Buckets(edges=common, counts=(1, 5, 4, 5))
    assert buckets((0.1, 0.5, 1.0, 2.0), [1, 2, 3, 4, 5], common) == Buckets(edges=common, counts=(1, 2, 3, 9))
    assert common_edges([(0.1,), (0.2,)]) == common_edges([]) == ()
