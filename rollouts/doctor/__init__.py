"""Diagnosis of a region on a cluster: findings by name, each with its evidence, its cause and its remediation.

`gather` reads one region into a `Snapshot` and changes nothing; `examine` runs every check on it, without I/O;
`diagnose` does both, twice. All are imported from their modules: a plan needs `queries` and none of the checks.
"""
