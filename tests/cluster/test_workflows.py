"""Deliveries by Argo Workflows on a real cluster, with users who ask all the time."""

from __future__ import annotations

import pytest
from cluster.surroundings import VARIABLE, Surroundings
from cluster.telling import Tell
from cluster.workflows import TOGETHER

pytestmark = pytest.mark.long


@pytest.mark.parametrize("story", TOGETHER)
def test_users_of_a_workflow(story: str, around: Surroundings | None, tell: Tell) -> None:
    if around and around.workflows is None:
        pytest.skip(f"the file that {VARIABLE} names knows no place for workflows")
    assert tell(story).users
