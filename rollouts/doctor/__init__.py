"""Diagnosis of a region on a cluster: findings by name, each with its evidence, its cause and its remediation.

`gather` reads one region into a `Snapshot` and changes nothing. A check is a row (code, severity, cause, remediation)
with a function of the snapshot that yields what it found; `examine` runs all of them, without I/O; `diagnose` gathers
and examines twice.
"""
