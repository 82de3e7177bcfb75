"""What of a fleet changes engines' pods, besides the engine itself: a part of what makes an engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from rollouts.manifests.customization.spec import PatchSpec, TemplateSpec
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Json, Value


def pod_changes(fleet: ArgoFleetSpec) -> dict[str, JsonValue]:
    """As an engine's record keeps it; empty for none."""
    patches = [each for each in fleet.patches if _is_of_pods(each)]
    template = fleet.template
    said: dict[str, JsonValue] = {
        "template": {"container": template.container, "pod": fleet.pod_template} if template else None,
        "labels": dict(fleet.labels),
        "annotations": dict(fleet.annotations),
        "patches": [each.model_dump(mode="json", by_alias=True, exclude_unset=True) for each in patches],
    }
    return {name: value for name, value in said.items() if value}


def with_pod_changes(fleet: ArgoFleetSpec, recorded: Mapping[str, JsonValue]) -> ArgoFleetSpec:
    """The fleet as it was when that was recorded, as far as it makes pods."""
    if pod_changes(fleet) == recorded:
        return fleet
    was = _Recorded.model_validate(recorded)
    patches = (*(each for each in fleet.patches if not _is_of_pods(each)), *was.patches)
    template = TemplateSpec(file=Path("recorded"), container=was.template.container) if was.template else None
    changed = {
        "template": template,
        "labels": was.labels,
        "annotations": was.annotations,
        "patches": patches,
    }
    then = fleet.model_copy(update=changed)
    return then.with_pod_template(was.template.pod) if was.template else then


class _RecordedTemplate(Value):
    container: str
    pod: Json


class _Recorded(Value):
    template: _RecordedTemplate | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    patches: tuple[PatchSpec, ...] = ()


def _is_of_pods(patch: PatchSpec) -> bool:
    return patch.target.kind == "Rollout" and any(each.path.startswith("/spec/template") for each in patch.json6902)
