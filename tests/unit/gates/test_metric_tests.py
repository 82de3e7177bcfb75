"""What questions make of a batch before any statistics: bins, places for pods, pairs that say something."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gates.analyses.agreement import AgreementGate
from gates.analyses.errors import ErrorsGate, PairedFailureTest
from gates.analyses.judge import MOST_WAITING, ScoresGate, ScoreTest
from gates.analyses.latency import MOST_TIMES, LatencyGate, PairedLatencyTest, UnfitTimes, counted, grid_of
from gates.evidence.batch import ArmName, Batch, Buckets, PairedAnswer, PairedReply, PodEvidence
from gates.sequential_test import AnalysisPlan, metric_tests
from gates.stats.spread import MOST_PODS, PodSlots

ONE = np.array([1.0, 0.0])


def buckets(*edges: float) -> Buckets:
    return Buckets(edges=edges, counts=tuple(range(1, len(edges) + 2)))


def test_the_grid_is_what_all_histograms_have_in_common() -> None:
    assert grid_of([buckets(0.1, 0.2, 0.4), (), buckets(0.2, 0.4, 0.8)]).tolist() == [0.2, 0.4]
    assert grid_of([buckets(0, 0.2, 0.4)]).tolist() == [0.2, 0.4]
    assert grid_of([(0.1, 0.2)])[0] == 0.001
    assert grid_of([(), ()]) is None
    with pytest.raises(UnfitTimes, match="fewer than two bucket edges in common"):
        grid_of([buckets(0.1, 0.2), buckets(0.2, 0.4)])


def test_bins_join_where_the_grid_is_coarser_and_samples_fall_into_them() -> None:
    edges = np.array([0.2, 0.8])
    assert counted(buckets(0, 0.1, 0.2, 0.4, 0.8), edges).tolist() == [6, 9, 6]
    assert counted((0.2, 0.0, 0.21, 5.0), edges).tolist() == [2, 1, 1]
    for lost in (buckets(0.2, 0.4), buckets(0.1, 0.8)):
        with pytest.raises(UnfitTimes, match="lost a bucket edge"):
            counted(lost, edges)


def test_a_new_pod_takes_the_place_of_the_one_seen_longest_ago() -> None:
    slots = PodSlots()
    slots.place({str(pod): ONE for pod in range(MOST_PODS)})
    slots.place({"0": ONE})
    counts, reused = slots.place({"new": 5 * ONE, "0": ONE})
    assert (reused, counts[0, 0], counts[1, 0]) == ([1], 1, 5)


def test_more_pods_at_once_than_places_share_the_last_and_none_is_lost() -> None:
    slots, crowd = PodSlots(), {str(pod): ONE for pod in range(MOST_PODS + 30)}
    for _ in range(3):
        counts, reused = slots.place(crowd)
        assert (counts.shape, counts.sum(), reused) == ((MOST_PODS, 2), MOST_PODS + 30, [])
    assert counts[:-1, 0].tolist() == [1] * (MOST_PODS - 1)


def test_a_prompt_that_nobody_answered_tells_nothing_of_either_arm() -> None:
    replied = PairedReply()
    question, other = (PairedFailureTest(ErrorsGate(max_increase=0.1)) for _ in range(2))
    told = (PairedAnswer(stable=replied, canary=replied),) * 30
    question.take(Batch(time=1, pairs=told + (PairedAnswer(),) * 500), 10)
    other.take(Batch(time=1, pairs=told), 10)
    assert (question.log_fine, question.log_worse) == (other.log_fine, other.log_worse)
    assert "left 500 without an answer, stable 500" in question.describe()


def test_nothing_grows_with_the_length_of_a_trial() -> None:
    scores = ScoreTest(ScoresGate(max_drop=0.1, min_pairs=1))
    for time in range(30):
        scores.take(Batch(time=time, arms=(PodEvidence(arm=ArmName.STABLE, scores=(0.5,) * 100),)), 1)
    scores.take(Batch(time=99, arms=(PodEvidence(arm=ArmName.CANARY, scores=(0.5,) * 3000),)), 1)
    assert scores.seen == MOST_WAITING
    times, reply = PairedLatencyTest(LatencyGate()), PairedReply(ttft=0.1)
    for time in range(12):
        times.take(Batch(time=time, pairs=(PairedAnswer(stable=reply, canary=reply),) * 1000), 1)
    assert times.numbers()["pairs"] == MOST_TIMES


def test_scores_of_both_arms_wait_for_each_other_across_batches() -> None:
    whole, parts = (ScoreTest(ScoresGate(max_drop=0.1, min_pairs=1)) for _ in range(2))
    stable = PodEvidence(arm=ArmName.STABLE, scores=(0.9, 0.8, 0.7))
    canary = PodEvidence(arm=ArmName.CANARY, scores=(0.5, 0.6, 0.7))
    whole.take(Batch(time=1, arms=(stable, canary)), 1)
    parts.take(Batch(time=1, arms=(stable,)), 1)
    assert parts.seen == 0
    parts.take(Batch(time=2, arms=(canary,)), 1)
    assert (parts.log_fine, parts.log_worse) == (whole.log_fine, whole.log_worse)


def test_next_to_the_composite_stands_what_each_dimension_got() -> None:
    question = ScoreTest(ScoresGate(max_drop=0.1, min_pairs=2))
    accuracy = {"stable": {"accuracy": [1, 0.8]}, "canary": {"accuracy": [0.5, 0.5], "safety": [1]}}
    question.take(Batch.model_validate({"time": 1, "source": "probe", "dimensions": accuracy}), 0)
    assert question.auxiliary() == pytest.approx(
        {"stable_accuracy_score": 0.9, "canary_accuracy_score": 0.5, "canary_safety_score": 1}
    )
    question.restart()
    assert question.auxiliary() == {}


def test_prompts_that_stable_left_without_an_answer_say_nothing_of_the_canary() -> None:
    """An overloaded stable arm rolled back a healthy canary."""
    both = PairedAnswer(stable=PairedReply(), canary=PairedReply(), similarity=0.9)
    pairs = (*(both,) * 10, *(PairedAnswer(canary=PairedReply()),) * 20, *(PairedAnswer(),) * 10)
    for _, test in metric_tests(AnalysisPlan(agreement=AgreementGate())):
        test.take(Batch(time=1, source="probe", pairs=pairs), 0)
        assert test.seen == 10
        assert test.log_fine > 0 and test.log_worse < math.log(100)


def test_prompts_that_the_canary_left_without_an_answer_are_no_likeness() -> None:
    pairs = (PairedAnswer(stable=PairedReply()),) * 40
    for _, test in metric_tests(AnalysisPlan(agreement=AgreementGate())):
        test.take(Batch(time=1, source="probe", pairs=pairs), 0)
        assert test.seen == 40 and test.log_worse > math.log(100)
