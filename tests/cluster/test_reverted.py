"""Who writes a region back during a delivery is named, and no request fails."""

from __future__ import annotations

import pytest
from cluster.reverted import ALONE
from cluster.telling import Tell

pytestmark = pytest.mark.long

TOGETHER: dict[str, object] = {}


@pytest.mark.parametrize("story", ALONE)
def test_users_while_others_write_it_back(story: str, tell: Tell) -> None:
    assert tell(story).users
