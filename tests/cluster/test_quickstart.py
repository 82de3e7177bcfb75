"""The cluster quickstart is typed as written, block by block, with users on the model all the while."""

from __future__ import annotations

import pytest
from cluster.quickstart_story import ALONE
from cluster.telling import Tell

pytestmark = pytest.mark.long

TOGETHER: dict[str, object] = {}


@pytest.mark.parametrize("story", ALONE)
def test_the_page_does_what_it_shows(story: str, tell: Tell) -> None:
    assert tell(story).users
