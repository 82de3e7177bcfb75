"""What a fleet can fail at.

FleetError (OutsideError)
├── EngineDidNotStart     died or stayed unhealthy; carries the tail of its log
├── Unreachable           the fleet itself did not answer
└── NotPossible           the wish contradicts the region's state (promote without a canary)
CapacityError (Refused)   too little memory or too few cores; nothing was started
PortInUse (Refused)       a port the spec asks for is taken; nothing was started
RulesRefused (Refused)    Prometheus does not take the rules; those of before stay
"""

from __future__ import annotations

from tidegate.core.errors import OutsideError, Refused


class FleetError(OutsideError):
    """A region could not do what it was asked."""


class EngineDidNotStart(FleetError):
    """The engine died or did not become healthy before its deadline; `detail` has its last lines."""


class Unreachable(FleetError):
    """The fleet did not answer. It may still be serving."""


class NotPossible(FleetError):
    """The wish contradicts what the region is doing."""


class CapacityError(Refused):
    """The machine has too little memory or too few cores for what was asked."""


class PortInUse(Refused):
    """Another process listens on a port that the spec asks for."""


class RulesRefused(Refused):
    """Prometheus does not take the rules; it keeps to those that it had. The message has its own words."""
