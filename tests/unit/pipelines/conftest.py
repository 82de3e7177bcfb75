"""A delivery in memory, for each test its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
