"""`tidegate doctor`: what is wrong with the regions of a fleet of clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipelines.spec.delivery import Delivery
from tidegate.app.clusters.doctor import RegionCheck, examine, exit_code
from tidegate.cli.output import Output, print_data
from tidegate.cli.views.console import PlainConsole
from tidegate.cli.views.doctor import findings_text


def show_findings(
    spec_path: Path,
    select: Callable[[Delivery], tuple[str, ...]],
    controller_namespace: str,
    *,
    output: Output,
) -> int:
    """Print what was found, and return what the worst of it means."""
    regions = examine(spec_path, select, controller_namespace)
    if output.is_data:
        print_data([_as_data(region, one) for region, one in regions.items()], output)
    else:
        told = {region: (one.findings, one.problem) for region, one in regions.items()}
        PlainConsole(soft_wrap=True).print(findings_text(told))
    return exit_code(regions)


def _as_data(region: str, seen: RegionCheck) -> dict[str, object]:
    findings = [each.model_dump(mode="json") for each in seen.findings]
    return {"region": region, "reachable": not seen.problem, "problem": seen.problem or None, "findings": findings}
