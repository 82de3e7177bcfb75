"""Two looks: what is found has to hold, and must not come up because somebody looked while a controller wrote."""

from __future__ import annotations

from rollouts.doctor.examine import examine
from rollouts.doctor.gather import Patient, gather
from rollouts.doctor.model import Finding, Severity
from rollouts.doctor.ports import Prometheus, Region
from tidegate.core.clock import Clock

BETWEEN_LOOKS_SECONDS = 5.0
"""A controller that is well has written everything that belongs together within a second or two."""


async def diagnose(
    region: Region, prometheus: Prometheus | None, patient: Patient, clock: Clock
) -> tuple[Finding, ...]:
    """What is wrong with the region, the worst first; of what is more than a note, what two looks have found.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    first = examine(await gather(region, prometheus, patient, clock))
    seen = {finding.code for finding in first if finding.severity is not Severity.NOTE}
    if not seen:
        return first
    await clock.sleep(BETWEEN_LOOKS_SECONDS)
    second = examine(await gather(region, prometheus, patient, clock))
    return tuple(finding for finding in second if finding.severity is Severity.NOTE or finding.code in seen)
