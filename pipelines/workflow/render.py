"""spec -> every object of its workflow. Reads the files that the spec names; asks nobody."""

from __future__ import annotations

from pathlib import Path

from pipelines.kept_files import laid_out
from pipelines.plan import steps_of
from pipelines.prompts import golden_set
from pipelines.spec import Delivery
from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.surroundings import surroundings
from pipelines.workflow.template import workflow_template
from rollouts.kube.model import Json
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.errors import UsageError


def blueprint_of(spec: Delivery, spec_path: Path) -> Blueprint:
    """What a workflow of this spec is made of.

    Raises:
        UsageError: it has no `workflow`, or its fleet is on this machine.
    """
    if spec.workflow is None or not isinstance(spec.fleet, ArgoFleetSpec):
        raise UsageError("this spec has no `workflow`", hint="see `workflow` in the documentation of the spec")
    spec_file, files = laid_out(spec_path, spec)
    return Blueprint(
        spec=spec,
        fleet=spec.fleet,
        settings=spec.workflow,
        steps=steps_of(spec, prompts=len(golden_set(spec, spec_path.parent))),
        spec_file=spec_file,
        files={place: path.read_text(encoding="utf-8") for place, path in files.items()},
    )


def rendered(blueprint: Blueprint) -> tuple[Json, ...]:
    """The objects in the order in which they can be applied; the WorkflowTemplate is the last."""
    return (*surroundings(blueprint), workflow_template(blueprint))
