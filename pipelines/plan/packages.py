"""Rendered objects of a delivery's regions as a Helm chart, or as Kustomize components. Pure.

Both hold the very objects that `tidegate rollout render` prints, so neither can say anything else. What a team sets at
its own end is which region; all other values are the delivery's spec, from which the package is written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rollouts.manifests.conventions import PackageTool
from tidegate.core.model import Json
from tidegate.core.yaml_text import yaml_text

Regions = Mapping[str, Sequence[Json]]
"""The objects of each."""


def package(tool: PackageTool, name: str, regions: Regions, *, version: str) -> Mapping[str, str]:
    """The texts of its files, by their paths in its folder.

    Args:
        tool: who reads it.
        name: of what is packaged, such as `support-llm-setup`.
        regions: objects, by the region that they are for.
        version: of tidegate, which rendered them.
    """
    if tool is PackageTool.HELM:
        return _chart(name, regions, version)
    return _components(regions)


def _chart(name: str, regions: Regions, version: str) -> Mapping[str, str]:
    only = next(iter(regions)) if len(regions) == 1 else ""
    return {
        "Chart.yaml": yaml_text(
            {
                "apiVersion": "v2",
                "name": name,
                "description": "Written by `tidegate rollout package`; write it again after a change of the delivery.",
                "type": "application",
                "version": "0.1.0",
                "appVersion": version,
            }
        ),
        "values.yaml": f"# One of {', '.join(regions)}: the region of the cluster that this release is installed in.\n"
        + yaml_text({"region": only}),
        "values.schema.json": _schema(regions),
        "templates/NOTES.txt": _notes(name),
        **{f"templates/{region}.yaml": _template(region, objects) for region, objects in regions.items()},
    }


def _schema(regions: Regions) -> str:
    region = {"enum": list(regions), "description": "The region of the cluster that the release is installed in."}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["region"],
        # Charts that have this one as a part hand `global` down.
        "properties": {"region": region, "global": {"type": "object"}},
        "additionalProperties": False,
    }
    return json.dumps(schema, indent=2) + "\n"


def _template(region: str, objects: Sequence[Json]) -> str:
    """What looks like a template's own brackets is text."""
    text = "".join(f"---\n{yaml_text(each)}" for each in objects).replace("{{", '{{ "{{" }}')
    return f'{{{{- if eq .Values.region "{region}" }}}}\n{text}{{{{- end }}}}\n'


def _notes(name: str) -> str:
    return (
        f"{name} is set up in region {{{{ .Values.region }}}}.\n"
        "`tidegate doctor delivery.yaml` says what a delivery lacks there.\n"
        "Its objects come from the delivery's spec: `tidegate rollout package` writes this chart again.\n"
    )


def _components(regions: Regions) -> Mapping[str, str]:
    files: dict[str, str] = {}
    for region, objects in regions.items():
        component = {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1",
            "kind": "Component",
            "resources": ["objects.yaml"],
        }
        files[f"{region}/kustomization.yaml"] = yaml_text(component)
        files[f"{region}/objects.yaml"] = "".join(f"---\n{yaml_text(each)}" for each in objects)
    return files
