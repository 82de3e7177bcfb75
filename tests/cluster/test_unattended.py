"""A trial without a carrier ends by itself, on a real cluster, by the pod that is rendered for it."""

from __future__ import annotations

import pytest
from cluster.bed import Bed
from cluster.telling import Telling
from cluster.unattended import ALONE

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

TOGETHER: dict[str, object] = {}


@pytest.fixture(scope="module", autouse=True)
def toolchain(regions: Bed) -> str:
    """The guard's image, before any story begins."""
    return regions.toolchain


@pytest.mark.parametrize("story", ALONE)
def test_a_region_that_comes_back_is_on_its_stable_within_unattended(story: str, tell: Telling) -> None:
    assert tell(story).users
