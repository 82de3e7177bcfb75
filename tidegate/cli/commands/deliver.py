"""`tidegate deliver`: a wrong spec is told at once, before anything heavy is imported for the delivery itself."""

from __future__ import annotations

from pathlib import Path

from pipelines.trust import Trusted
from tidegate.cli.ci import Reports, errors_told
from tidegate.cli.compose import read_delivery
from tidegate.cli.prover import Means


def run(
    spec_path: Path,
    state: Path,
    tracking_uri: str | None,
    *,
    as_json: bool,
    users: bool,
    keep: bool,
    version: str | None,
    metrics_address: str,
    reports: Reports,
    trusted: Trusted,
    means: Means,
) -> int:
    """Deliver; returns the exit code that tells the ending."""
    with errors_told(reports):
        spec = read_delivery(spec_path)
    from tidegate.cli.delivery import run_delivery

    return run_delivery(
        spec,
        spec_path,
        state,
        tracking_uri,
        as_json=as_json,
        users=users,
        keep=keep,
        version=version,
        metrics_address=metrics_address,
        reports=reports,
        trusted=trusted,
        means=means,
    )
