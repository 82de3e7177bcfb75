"""What Helm made is adopted, delivered to and given back under constant load: no request fails."""

from __future__ import annotations

import pytest
from cluster.adopted import ALONE
from cluster.telling import Telling

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

TOGETHER: dict[str, object] = {}


@pytest.mark.parametrize("story", ALONE)
def test_users_of_what_others_made(story: str, tell: Telling) -> None:
    assert tell(story).users
