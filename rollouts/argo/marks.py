"""One character for each status, and short ages, as kubectl and its plugin write them (`info/`, `HumanDuration`)."""

from __future__ import annotations

from datetime import timedelta

GOOD, BAD, WARNING, MOVING, WAITING, HELD, IDLE, UNKNOWN = "✔", "✖", "⚠", "◌", "◷", "॥", "•", "?"

ROLLOUT_MARKS = {
    "healthy": GOOD,
    "degraded": BAD,
    "paused": HELD,
    "paused-inconclusive": UNKNOWN,
    "progressing": MOVING,
    "stuck": WARNING,
}
REPLICA_SET_MARKS = {"Healthy": GOOD, "Progressing": MOVING, "ReplicaFailure": BAD, "ScaledDown": IDLE}
ANALYSIS_MARKS = {
    "Successful": GOOD,
    "Inconclusive": UNKNOWN,
    "Failed": BAD,
    "Error": WARNING,
    "Running": MOVING,
    "Pending": WAITING,
}
POD_MARKS = {
    "Pending": MOVING,
    "Terminating": MOVING,
    "ContainerCreating": MOVING,
    "Running": GOOD,
    "Completed": GOOD,
    "Failed": BAD,
    "InvalidImageName": BAD,
    "CrashLoopBackOff": BAD,
    "ImagePullBackOff": WARNING,
    "RegistryUnavailable": WARNING,
    "Unknown": UNKNOWN,
}

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
AGES = (
    (120, "s", ""),
    (600, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86400, "d", "h"),
    (2 * 365 * 86400, "d", ""),
    (8 * 365 * 86400, "y", "d"),
    (None, "y", ""),
)
"""Below so many seconds an age is told in this unit, with the rest in that one."""


def pod_mark(status: str) -> str:
    """`podIcon`."""
    if status.startswith("Init:"):
        return MOVING
    if status.startswith(("Signal:", "ExitCode:")):
        return BAD
    if status.endswith("Error") or status.startswith("Err"):
        return WARNING
    return POD_MARKS.get(status, " ")


def short_age(age: timedelta) -> str:
    """`HumanDuration`: two units at most, and the smaller one only while it matters."""
    seconds = max(int(age.total_seconds()), 0)
    _, unit, smaller = next(row for row in AGES if row[0] is None or seconds < row[0])
    whole, rest = divmod(seconds, SECONDS[unit])
    part = rest // SECONDS[smaller] if smaller else 0
    return f"{whole}{unit}{part}{smaller}" if part else f"{whole}{unit}"
