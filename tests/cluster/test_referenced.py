"""A Rollout of others by reference, on a real API server, with streamed requests all the while."""

from __future__ import annotations

import pytest
from cluster.referenced_story import ALONE
from cluster.telling import Tell

pytestmark = pytest.mark.long

TOGETHER: dict[str, object] = {}


@pytest.mark.parametrize("story", ALONE)
def test_their_users_while_things_go_wrong(story: str, tell: Tell) -> None:
    assert tell(story).users
