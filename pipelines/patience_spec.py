"""`patience` of a delivery: how long it goes on without each of its sources."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from tidegate.core.model import SpecModel
from tidegate.core.quantities import Duration


class PatienceSpec(SpecModel):
    """Each outlives a restart of what it waits for."""

    metrics: Duration = Field(default=timedelta(minutes=2), gt=timedelta(0))
    """How long evidence may be unreadable while a gate asks for it; then the delivery goes back."""
    registry: Duration = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """How long MLflow may be silent: for a step that is to begin, and for gates that go on meanwhile."""
    api: Duration | None = Field(default=None, gt=timedelta(0))
    """How long a region's API server may be silent before a delivery gives the region up, 10m by default; it goes on
    serving."""
    call: Duration = Field(default=timedelta(seconds=10), gt=timedelta(0))
    """How long one call to MLflow may take; after that it counts as silence."""
    end: Duration = timedelta(seconds=30)
    """How long a delivery that is over waits for MLflow to take its last records; then the next command writes them."""
