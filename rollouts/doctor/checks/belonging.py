"""Whether the names of a delivery's objects are its own."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot

NOT_OURS = Ailment(
    code="not-ours",
    severity=Severity.ERROR,
    cause="objects of somebody else have the names that this delivery would use: a delivery is refused before it "
    "writes anything, and they serve whom they serve",
    cure="give the delivery another `metadata.name` or `fleet.namespace`, or let their owner take them away",
)
AILMENTS = (NOT_OURS,)


def names(snapshot: Snapshot) -> Iterator[Finding]:
    """No object of somebody else is where one of ours would be."""
    if snapshot.strangers:
        count = len(snapshot.strangers)
        what = f"{count} object{'s' if count > 1 else ''} of others where {snapshot.delivery} would have its own"
        yield NOT_OURS.found(what, *(str(each) for each in snapshot.strangers))


CHECKS = (names,)
