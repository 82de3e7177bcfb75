"""E-processes over whole sequences: their mean is 1 under the null, at every look and for every prior."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.stats import binary, paired, times
from gates.stats.binary import ShareProcess
from gates.stats.e_process import AT_ONCE, Onset, Product, with_healthy
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess

SECONDS = st.lists(st.floats(0, 4000), min_size=5, max_size=5)


@pytest.mark.parametrize(
    "weights",
    [
        paired.STAKE_WEIGHTS,
        with_healthy(paired.STAKE_WEIGHTS),
        binary.ACCEPT_WEIGHTS,
        binary.WORSE_WEIGHTS,
        binary.STEP_WEIGHTS,
        times.FINE_WEIGHTS,
        times.SHAPE_WEIGHTS,
        paired.STEEPNESS_WEIGHTS,
    ],
)
def test_every_mixture_is_a_mean(weights: tuple[float, ...]) -> None:
    assert sum(weights) == pytest.approx(1) and min(weights) > 0


@given(seconds=SECONDS)
def test_fair_coins_win_nothing_on_average_whenever_a_regression_may_begin(seconds: list[float]) -> None:
    means = np.zeros(5)
    for sequence in product((0.5, 1.5), repeat=5):
        process = Onset((0.5, 0.5))
        for look, (e, step) in enumerate(zip(sequence, seconds, strict=True)):
            process.feed(np.log([e, 2 - e]), step)
            means[look] += float(np.exp(process.log_evidence)) / 2**5
    assert means == pytest.approx(np.ones(5), abs=1e-9)


def test_a_late_regression_is_seen_much_sooner_than_by_a_product() -> None:
    onset, whole = Onset((1.0,)), Product((1.0,))
    for log_e in [-0.2] * 60 + [0.4] * 25:
        onset.feed(np.array([log_e]), 10)
        whole.feed(np.array([log_e]))
    assert onset.log_evidence > np.log(100) > whole.log_evidence


def test_one_scrape_leaves_the_waiting_part_of_the_prior() -> None:
    process = Onset((1.0,))
    process.feed(np.log([10.0]), 0)
    assert np.exp(process.log_evidence) == pytest.approx(AT_ONCE * 10 + (1 - AT_ONCE))


def means_over_sequences(process_of, values: list[float], chances: list[float], *, length: int) -> tuple[float, float]:
    """Mean evidence of worse and of fine over every sequence of draws, fed two by two."""
    worse = fine = 0.0
    for sequence in product(range(len(values)), repeat=length):
        process, chance = process_of(), float(np.prod([chances[each] for each in sequence]))
        for pair in np.reshape([values[each] for each in sequence], (-1, 2)):
            process.feed(pair, 60.0)
        worse += chance * float(np.exp(process.log_worse))
        fine += chance * float(np.exp(process.log_fine))
    return worse, fine


@pytest.mark.parametrize("edge", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("spread", [(-1.0, 1.0), (-0.3, 0.7), (-1.0, 0.6), (-0.2, 1.0)])
def test_bets_on_a_mean_at_the_edge_win_nothing(edge: float, spread: tuple[float, float]) -> None:
    low, high = spread
    chance = (edge - low) / (high - low)
    worse, fine = means_over_sequences(
        lambda: PairedScoresProcess(max_drop=edge, tolerance=edge), [low, high], [1 - chance, chance], length=4
    )
    assert worse == pytest.approx(1, abs=1e-9)
    # What exceeds 1 is cut off, against the canary; so a mean below 1 is right.
    assert fine <= 1 + 1e-9
    if high <= edge + 1 and low >= edge - 1:
        assert fine == pytest.approx(1, abs=1e-9)


def test_swapping_both_answers_of_a_pair_wins_nothing() -> None:
    ratios = [-2.5, -0.4, 0.4, 2.5]
    worse, fine = means_over_sequences(
        lambda: PairedTimesProcess(max_increase=0.0, tolerance=0.0), ratios, [0.1, 0.4, 0.4, 0.1], length=4
    )
    assert (worse, fine) == (pytest.approx(1, abs=1e-9), pytest.approx(1, abs=1e-9))
    # At the tolerance for "worse", at the margin for "fine": the ratio is as likely above it as below.
    at = [np.log(1.2) + ratio for ratio in ratios]
    worse, fine = means_over_sequences(
        lambda: PairedTimesProcess(max_increase=0.2, tolerance=0.2), at, [0.1, 0.4, 0.4, 0.1], length=4
    )
    assert (worse, fine) == (pytest.approx(1, abs=1e-9), pytest.approx(1, abs=1e-9))


@pytest.mark.parametrize("bound", [0.3, 0.6, 0.9])
def test_stakes_beyond_one_win_nothing_at_a_fixed_bound_either(bound: float) -> None:
    """No score is below 0, so no draw loses more than the bound, and more than all can be staked."""
    _, fine = means_over_sequences(
        lambda: PairedScoresProcess(max_drop=0.0, largest_drop=bound), [bound, bound - 1], [1 - bound, bound], length=6
    )
    assert fine == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("bound", [0.001, 0.3, 0.9, 0.999])
def test_a_share_at_its_bound_is_no_evidence_and_one_beyond_it_less(bound: float) -> None:
    for true in (bound, bound * 0.9, bound + (1 - bound) * 0.1):
        worse = fine = 0.0
        for sequence in product((0, 1), repeat=6):
            process = ShareProcess(bound)
            chance = float(np.prod([true if hit else 1 - true for hit in sequence]))
            for hit in sequence:
                process.feed(np.asarray(hit), np.asarray(1 - hit), 60)
            worse += chance * float(np.exp(process.log_worse))
            fine += chance * float(np.exp(process.log_fine))
        assert worse <= 1 + 1e-9 if true >= bound else worse > 1
        assert fine <= 1 + 1e-9 if true <= bound else fine > 1
        if true == bound:
            assert (worse, fine) == (pytest.approx(1, abs=1e-9), pytest.approx(1, abs=1e-9))


def test_a_restart_forgets_what_spoke_for_the_canary_and_nothing_else() -> None:
    for process, draws in (
        (PairedScoresProcess(max_drop=0.5), np.full(50, 0.1)),
        (PairedTimesProcess(max_increase=0.5, tolerance=0), np.zeros(50)),
    ):
        process.feed(draws, 10)
        worse = float(process.log_worse)
        assert process.log_fine > 1
        process.restart_acceptance()
        assert (float(process.log_worse), float(process.log_fine)) == (worse, pytest.approx(0, abs=1e-12))
