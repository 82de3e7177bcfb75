"""What users of a delivery on clusters meet, story by story: all have engines, and each ends on the right version."""

from __future__ import annotations

import pytest
from cluster import judge_story, quickstart_story, referenced_story, reverted, unattended, users_questions, workflows
from cluster import stories as deliveries
from cluster.surroundings import VARIABLE, Surroundings
from cluster.telling import Tell

TOGETHER = workflows.TOGETHER | users_questions.TOGETHER | unattended.TOGETHER | deliveries.TOGETHER
"""Those that wait longest come first."""
ALONE = {
    name: story
    for module in (deliveries, unattended, quickstart_story, referenced_story, reverted, judge_story)
    for name, story in module.ALONE.items()
}
QUICK = {"healthy", "without_ledger", "without_controller", "slow", "crashing", *unattended.TOGETHER}
"""Those that every change meets; the others are told by `make test-cluster-all`."""


@pytest.mark.parametrize(
    "story", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in (*TOGETHER, *ALONE)]
)
def test_users_of_a_story(story: str, around: Surroundings | None, tell: Tell) -> None:
    if story in workflows.TOGETHER and around and around.workflows is None:
        pytest.skip(f"the file that {VARIABLE} names knows no place for workflows")
    assert tell(story).users
