"""Bins of times: stretching them, and taking a tolerance off the canary's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.stats.exchange import log_e
from gates.stats.times import RATIO, count_samples, relax, sample_edges, stretch

EDGES = st.lists(st.floats(1e-3, 600), min_size=2, max_size=12, unique=True).map(sorted).map(np.asarray)


def apart(edges: np.ndarray) -> bool:
    return bool(np.diff(np.log(edges)).min() > 1e-6)


@given(edges=EDGES.filter(apart), factor=st.floats(0.2, 5))
def test_stretching_loses_nothing_and_moves_one_way(edges: np.ndarray, factor: float) -> None:
    moves = stretch(edges, factor)
    assert not moves.flags.writeable  # all who ask have the same one
    assert moves.sum(axis=1) == pytest.approx(1)
    assert moves.min() >= 0
    wrong_way = np.tril(moves, -1) if factor > 1 else np.triu(moves, 1)
    assert wrong_way.max() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("steps", [1, 3, -2])
def test_whole_steps_of_the_sample_grid_move_whole_bins(steps: int) -> None:
    edges = sample_edges()
    moved = stretch(edges, RATIO**steps)
    inner = range(5, len(edges) - 5)
    assert [moved[bin_, bin_ + steps] for bin_ in inner] == pytest.approx([1.0] * len(inner))
    samples = np.exp(np.random.default_rng(2).uniform(np.log(0.01), np.log(10), 500))
    expected = count_samples(samples * RATIO**steps, edges)
    assert count_samples(samples, edges) @ moved == pytest.approx(expected, abs=1e-6)


def test_every_sample_is_counted_once() -> None:
    edges = sample_edges()
    assert (edges[0], edges[-1] >= 600) == (1e-3, True)
    samples = [0.0, 1e-9, 1e-3, 0.2, 0.2, 599.0, 1e5]
    counts = count_samples(samples, edges)
    assert (counts.sum(), counts[0], counts[-1]) == (7, 3, 1)


COUNTS = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 10**7)), min_size=9, max_size=9)


@given(counts=COUNTS, scrape=st.integers(0, 10**5), tolerance=st.sampled_from([0.01, 0.05, 0.5, 2.0]))
def test_a_tolerance_only_makes_requests_faster(counts: list[int], scrape: int, tolerance: float) -> None:
    edges = np.geomspace(0.05, 5, 8)
    before = np.asarray(counts, dtype=np.float64)
    after = relax(before, stretch(edges, 1 / (1 + tolerance)), scrape)
    assert after.sum() == before.sum()
    assert after.min() >= 0 and (after == np.floor(after)).all()
    assert (np.cumsum(after) >= np.cumsum(before)).all()


def test_a_tolerance_is_right_on_average() -> None:
    edges = np.geomspace(0.05, 5, 8)
    counts, moves = np.array([5.0, 9, 30, 25, 12, 6, 3, 2, 1]), stretch(edges, 1 / 1.05)
    mean = np.mean([relax(counts, moves, scrape) for scrape in range(2000)], axis=0)
    assert mean == pytest.approx(counts @ moves, abs=0.01)


@given(canary=st.lists(st.integers(0, 40), min_size=9, max_size=9), scrape=st.integers(0, 1000))
def test_a_tolerance_is_never_evidence_of_slower(canary: list[int], scrape: int) -> None:
    edges, stable = np.geomspace(0.05, 5, 8), np.array([40.0, 60, 80, 60, 40, 20, 10, 5, 5])
    log_h = np.log([[0.5, 0.6, 0.8, 0.9, 1, 1.2, 1.5, 2, 3], [1, 1, 1, 1, 1, 1, 2.5, 2.5, 2.5]])
    before = np.asarray(canary, dtype=np.float64)
    after = relax(before, stretch(edges, 1 / 1.05), scrape)
    assert (log_e(log_h, after, after + stable) <= log_e(log_h, before, before + stable) + 1e-4).all()
