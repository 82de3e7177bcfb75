"""How a delivery stops before its end.

Stopped            a stage said no; carries the ending and the reason
PlanRefused (2)    the plan could never reach a verdict
NotAsPlanned (5)   spec, kept file, evidence or plan are not those with which the delivery was opened
DeliveryRuns (2)   another delivery of this model is on its way
NoImage (2)        a version that clusters shall serve was not pushed as an image
UntrustedImage (5) an engine image is not from where it may be, not signed as it has to be, or of another version
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.model import EXIT_CODES, Ending, SpecChange
from tidegate.core.errors import ExitCode, NotGenuine, Refused


class Stopped(Exception):
    """A stage ended the delivery. Not an error: the gates did their work."""

    def __init__(self, ending: Ending, reason: str, exit_code: ExitCode | None = None) -> None:
        """`ending` decides the exit code, unless one is given; `reason` is what people will read at night."""
        super().__init__(reason)
        self.ending = ending
        self.reason = reason
        self.exit_code = EXIT_CODES[ending] if exit_code is None else exit_code


def by_others(reason: str) -> Stopped:
    """Somebody else changed a region meanwhile: that says nothing about the version, and nobody asked us to stop."""
    return Stopped(Ending.INTERRUPTED, reason, ExitCode.OUTSIDE)


class PlanRefused(Refused):
    """A stage could not reach a verdict in its time; nothing was deployed."""

    def __init__(self, message: str, *, hint: str, proposals: Sequence[SpecChange] = ()) -> None:
        """`proposals` are changes of the spec, each of which alone would do."""
        super().__init__(message, hint=hint)
        self.proposals = tuple(proposals)


class NotAsPlanned(NotGenuine):
    """What a process was about to do is not what the delivery was opened with; nothing was touched."""


class NoImage(Refused):
    """A version has no engine image by digest, which is all that clusters can serve; nothing was deployed."""


class UntrustedImage(NotGenuine):
    """An engine is not one that the trust file allows, or is of another model version; nothing was deployed."""
