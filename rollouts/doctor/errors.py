"""What a Prometheus may answer to a question that is none."""

from __future__ import annotations

from rollouts.errors import FleetError


class QueryRefused(FleetError):
    """Prometheus cannot evaluate the query; the message has its own words."""
