"""What can go wrong with SLOs that are right in themselves."""

from __future__ import annotations

from tidegate.core.errors import UsageError


class CannotSay(UsageError):
    """A format has no words for an SLO."""
