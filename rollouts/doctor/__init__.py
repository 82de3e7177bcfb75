"""Diagnosis of a region on a cluster: findings by name, each with its evidence, its cause and its remediation.

`gather` reads one region into a `Snapshot` and changes nothing; `examine` runs every check on it, without I/O;
`diagnose` does both, twice.
"""

from __future__ import annotations

from rollouts.doctor.diagnosis import CHECKS, diagnose, examine
from rollouts.doctor.gather import CONTROLLER_NAMESPACE, WORKFLOWS_NAMESPACE, DiagnosisTarget, gather
from rollouts.doctor.model import Check, Finding, Severity, Snapshot
from rollouts.doctor.queries import EvidenceQuery, ScrapeInterval

__all__ = [
    "CHECKS",
    "CONTROLLER_NAMESPACE",
    "WORKFLOWS_NAMESPACE",
    "Check",
    "DiagnosisTarget",
    "EvidenceQuery",
    "Finding",
    "ScrapeInterval",
    "Severity",
    "Snapshot",
    "diagnose",
    "examine",
    "gather",
]
