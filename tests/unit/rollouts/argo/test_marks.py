from __future__ import annotations

from datetime import timedelta

import pytest

from rollouts.argo.marks import pod_mark, short_age


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (4 * 3600 - 1, "3h59m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (51 * 3600, "2d3h"),
        (7 * 86400, "7d"),
        (8 * 86400 + 3600, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_ages_are_as_short_as_those_of_kubectl(seconds: int, text: str) -> None:
    assert short_age(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        ("Running", "✔"),
        ("Init:0/1", "◌"),
        ("ExitCode:1", "✖"),
        ("CrashLoopBackOff", "✖"),
        ("ImagePullBackOff", "⚠"),
        ("ErrImagePull", "⚠"),
        ("RunContainerError", "⚠"),
        ("Terminating", "◌"),
        ("SomethingNew", " "),
    ],
)
def test_pods_have_the_marks_that_users_of_kubectl_know(status: str, mark: str) -> None:
    assert pod_mark(status) == mark
