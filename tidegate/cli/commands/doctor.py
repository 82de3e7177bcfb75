"""`tidegate doctor`: what is wrong with the regions of a fleet of clusters."""

from __future__ import annotations

from pathlib import Path

from tidegate.app.clusters.doctor import DoctorOptions, RegionCheck, examine, require_files_of_workflow
from tidegate.cli.output import OutputForm, print_data
from tidegate.cli.views.console import PlainConsole
from tidegate.cli.views.doctor import findings_text


def show_findings(spec_path: Path, asked: DoctorOptions, *, output: OutputForm) -> int:
    """Tell what was found, and return what the worst of it means."""
    seen = examine(spec_path, asked)
    if output.is_data:
        print_data([_as_data(region, one) for region, one in seen.regions.items()], output)
    else:
        told = {region: (one.findings, one.problem) for region, one in seen.regions.items()}
        PlainConsole(soft_wrap=True).print(findings_text(told))
    # Last: what is wrong with the regions is worth knowing all the same.
    require_files_of_workflow(seen, asked)
    return seen.exit_code


def _as_data(region: str, seen: RegionCheck) -> dict[str, object]:
    findings = [each.model_dump(mode="json") for each in seen.findings]
    return {"region": region, "reachable": not seen.problem, "problem": seen.problem or None, "findings": findings}
