"""A version that is worse on users' own questions alone is rolled back in clusters too, and nothing of them is left."""

from __future__ import annotations

import pytest
from cluster.telling import Tell
from cluster.users_questions import TOGETHER

# A kubelet may take two minutes to bring pods what they are to keep, in each of two deliveries.
pytestmark = pytest.mark.long


@pytest.mark.parametrize("story", TOGETHER)
def test_users_whose_questions_nobody_thought_of(story: str, tell: Tell) -> None:
    assert tell(story).users
