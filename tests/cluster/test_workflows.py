"""Deliveries by Argo Workflows on a real cluster, with users who ask all the time."""

from __future__ import annotations

import pytest
from cluster.bed import Bed
from cluster.surroundings import VARIABLE
from cluster.telling import Telling
from cluster.workflows import TOGETHER

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module", autouse=True)
def toolchain(regions: Bed) -> str:
    """The image of the steps, before any of them begins."""
    if regions.around.workflows is None:
        pytest.skip(f"the file that {VARIABLE} names knows no place for workflows")
    return regions.toolchain


@pytest.mark.parametrize("story", TOGETHER)
def test_users_of_a_workflow(story: str, tell: Telling) -> None:
    assert tell(story).users
