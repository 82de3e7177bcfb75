"""The fleet of this machine keeps the promises of a fleet."""

from __future__ import annotations

from tidegate.testing import FleetContract


class TestLocalFleet(FleetContract):
    """The fixtures come from `conftest.py`."""
