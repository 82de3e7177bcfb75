"""Whole deliveries on clusters, under constant load: no request fails, and all end on the right version."""

from __future__ import annotations

import pytest
from cluster.stories import ALONE, TOGETHER
from cluster.telling import Tell

QUICK = {"healthy", "without_ledger", "without_controller", "slow", "crashing"}
"""Those that every change meets; the others are told by `make test-cluster-all`."""


@pytest.mark.parametrize(
    "story", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in (*TOGETHER, *ALONE)]
)
def test_users_of_a_delivery(story: str, tell: Tell) -> None:
    assert tell(story).users
