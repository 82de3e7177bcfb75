"""The fleet of this machine keeps the promises of a fleet."""

from __future__ import annotations

import pytest

from tidegate.testing import FleetContract


@pytest.mark.slow(reason="a fleet host, Envoy and engines")
class TestLocalFleet(FleetContract):
    """The fixtures come from `conftest.py`."""
