"""Where one region is, for the fleet that acts there."""

from __future__ import annotations

from tidegate.core.model import Value


class Place(Value):
    """One delivery in one region."""

    region: str
    name: str
    """The delivery's: its Rollout has it, and its other objects have names made of it."""
    entry: str
    """The address that users of the region talk to."""
    stable_url: str
    """Where the stable answers, past all weights."""
    canary_url: str
    """Where the canary answers, past all weights."""
    start_seconds: float = 1800.0
    """How long a version may take from being asked for until all its engines are ready."""
    patience_seconds: float = 600.0
    """How long the region may be silent before a wish is given up; it goes on serving meanwhile."""
    warm_versions: int | None = None
    """Versions that were stable and are kept warm; None keeps none."""
    after_abort_seconds: float = 300.0
    """How long the engines of a version stay up after it was taken back."""
    nodes_grow: bool = False
    """Whether nodes come when pods ask for them: then those that are there say nothing of room."""
