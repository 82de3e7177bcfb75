"""A healthy region, to be broken."""

from __future__ import annotations

import pytest
from fakes.clusters.doctor_region import Region


@pytest.fixture
def region() -> Region:
    return Region()


@pytest.fixture
def trial() -> Region:
    """With version 8 on trial, deployed and without users."""
    region = Region()
    region.deploy("8")
    region.wait(60)
    return region


@pytest.fixture
def canary() -> Region:
    """With version 8 on trial and 5 % of users on it."""
    region = Region()
    region.deploy("8")
    region.wait(60)
    region.promote_step()
    region.wait(60)
    return region
