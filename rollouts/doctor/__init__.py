"""What is wrong with a region, told by name: each finding with its evidence, its cause and its cure.

`gather` reads one region, and changes nothing; `examine` decides, without I/O; `diagnose` does both, twice.
"""

from __future__ import annotations

from rollouts.doctor.diagnosis import diagnose
from rollouts.doctor.examine import AILMENTS, examine
from rollouts.doctor.gather import CONTROLLER_NAMESPACE, Patient, gather
from rollouts.doctor.model import Finding, Severity, Snapshot
from rollouts.doctor.questions import Question
from rollouts.doctor.scraping import Scraping

__all__ = [
    "AILMENTS",
    "CONTROLLER_NAMESPACE",
    "Finding",
    "Patient",
    "Question",
    "Scraping",
    "Severity",
    "Snapshot",
    "diagnose",
    "examine",
    "gather",
]
