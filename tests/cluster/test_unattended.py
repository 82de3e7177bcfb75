"""A trial without a carrier ends by itself, on a real cluster, by the pod that is rendered for it."""

from __future__ import annotations

import pytest
from cluster.telling import Tell
from cluster.unattended import ALONE, TOGETHER


@pytest.mark.parametrize("story", [*TOGETHER, *(pytest.param(name, marks=pytest.mark.long) for name in ALONE)])
def test_a_trial_without_a_carrier_is_over_once_its_lease_has_run_out(story: str, tell: Tell) -> None:
    assert tell(story).users
