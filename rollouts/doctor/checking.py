"""What a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

from rollouts.doctor.model import Finding, Snapshot
from rollouts.kube.model import Json

Check = Callable[[Snapshot], Iterator[Finding]]
"""Looks at the snapshot and at nothing else."""


def of_rollout(check: Callable[[Snapshot, Json], Iterator[Finding]]) -> Check:
    """A check of the delivery's Rollout, which has nothing to say before there is one."""

    @wraps(check)
    def checked(snapshot: Snapshot) -> Iterator[Finding]:
        if snapshot.rollout is not None:
            yield from check(snapshot, snapshot.rollout)

    return checked
