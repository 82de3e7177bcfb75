"""`tidegate rollout ignore-differences`: what to paste into a GitOps tool's own objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rollouts.adoption.gitops import DeliveredObject, argo_cd_settings, flux_settings
from rollouts.manifests.conventions import GitOpsTool
from tidegate.app.clusters.gitops import objects_of_deliveries
from tidegate.cli.output import Output, print_data, say
from tidegate.core.model import Json
from tidegate.core.yaml_text import yaml_text

_SETTINGS: Mapping[GitOpsTool, tuple[str, Callable[[tuple[DeliveredObject, ...]], Json]]] = {
    GitOpsTool.ARGO_CD: ("Application", argo_cd_settings),
    GitOpsTool.FLUX: ("Kustomization", flux_settings),
}


def ignore_differences(spec: Path, tool: GitOpsTool, output: Output) -> int:
    """Print it, as YAML with a line that says where it belongs."""
    found = objects_of_deliveries(spec)
    kind, settings = _SETTINGS[tool]
    if output.is_data:
        print_data(settings(found.objects), output)
        return 0
    say(f"# For the `spec` of the {kind} that has objects of {found.delivery} which deliveries write.")
    say(
        "# Objects of `tidegate rollout render --part setup` and `--part admission` are not among them: Git owns those."
    )
    print(yaml_text(settings(found.objects)).rstrip())
    return 0
