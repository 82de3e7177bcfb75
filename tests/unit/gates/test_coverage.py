"""Whether the copies of user traffic arrive, counted from the start of a stage."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gates.analyses.errors import MirrorTest
from gates.evidence.batch import ArmName, Batch, PodEvidence

LATE = [(0, 300), (300, 300), (300, 0), (300, 300), (0, 300), (300, 300), (300, 0), (300, 300)] * 3
"""Copies and requests in windows shorter than a scrape interval: one arm is scraped in this, the other in the next."""


def asked(windows: Iterable[tuple[int, int]]) -> MirrorTest:
    question = MirrorTest(1.0)
    for at, (copies, requests) in enumerate(windows):
        question.take(batch(at, copies, requests), 10)
    return question


def batch(at: int, copies: int, requests: int) -> Batch:
    arms = (PodEvidence(arm=ArmName.CANARY, requests=copies), PodEvidence(arm=ArmName.STABLE, requests=requests))
    return Batch(time=1000 + 10 * at, source="proxy", arms=tuple(pod for pod in arms if pod.requests))


def test_copies_that_are_shown_a_window_early_or_late_have_arrived() -> None:
    question = asked(LATE)
    assert question.describe() == "5,400 copies of 5,400 requests arrived (100% are mirrored)"
    assert question.log_fine > 300


def test_an_arm_that_is_shown_late_is_caught_up_with() -> None:
    late = asked([(0, 100), (100, 100), (100, 100)])
    assert late.numbers() == {"mirrored_requests": 200.0, "stable_requests": 300.0}
    late.take(batch(9, 100, 0), 10)
    assert late.log_fine == pytest.approx(asked([(300, 300)]).log_fine)


def test_copies_that_do_not_come_are_missed_in_the_window_in_which_they_do_not() -> None:
    whole, broken = [(300, 300)] * 10, [(200, 300)] * 10
    shown = [asked([*whole, *broken[:at]]).log_fine for at in range(len(broken) + 1)]
    assert shown == sorted(shown, reverse=True) and shown[1] < shown[0]
    assert asked(broken).log_fine < 0


def test_a_canary_that_others_ask_too_has_no_more_copies_than_there_were_requests() -> None:
    assert asked([(900, 300)]).describe() == "300 copies of 300 requests arrived (100% are mirrored)"


def test_a_restart_counts_again() -> None:
    question = asked([(0, 300)])
    question.restart()
    assert question.log_fine == 0
    question.take(batch(3, 300, 300), 10)
    assert question.describe() == "300 copies of 300 requests arrived (100% are mirrored)"
