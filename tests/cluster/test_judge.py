"""The judge in its pods, asked as Argo Rollouts asks."""

from __future__ import annotations

import pytest
from cluster.judge_story import ALONE
from cluster.telling import Tell

pytestmark = pytest.mark.long

TOGETHER: dict[str, object] = {}


@pytest.mark.parametrize("story", ALONE)
def test_a_rollout_that_stays_its_team_s(story: str, tell: Tell) -> None:
    assert tell(story).users
