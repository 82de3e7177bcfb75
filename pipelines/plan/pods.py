"""What of a fleet changes engines' pods, besides the engine itself: a part of what makes an engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from pipelines.errors import UntrustedImage
from rollouts.manifests.customization.spec import PatchSpec
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Value
from tidegate.core.text import foreign


def pod_changes(fleet: ArgoFleetSpec) -> dict[str, JsonValue]:
    """As an engine's record keeps it; empty for none."""
    patches = [each for each in fleet.patches if _is_of_pods(each)]
    said: dict[str, JsonValue] = {
        "labels": dict(fleet.labels),
        "annotations": dict(fleet.annotations),
        "patches": [each.model_dump(mode="json", by_alias=True, exclude_unset=True) for each in patches],
    }
    return {name: value for name, value in said.items() if value}


def with_pod_changes(fleet: ArgoFleetSpec, recorded: Mapping[str, JsonValue]) -> ArgoFleetSpec:
    """The fleet as it was when that was recorded, as far as it makes pods.

    Raises:
        UntrustedImage: no command of tidegate has recorded it so.
    """
    if pod_changes(fleet) == recorded:
        return fleet
    with foreign(lambda why: UntrustedImage(f"the recorded changes of an engine's pods cannot be read: {why}")):
        was = _Recorded.model_validate(recorded)
    patches = (*(each for each in fleet.patches if not _is_of_pods(each)), *was.patches)
    return fleet.model_copy(update={"labels": was.labels, "annotations": was.annotations, "patches": patches})


class _Recorded(Value):
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    patches: tuple[PatchSpec, ...] = ()


def _is_of_pods(patch: PatchSpec) -> bool:
    return patch.target.kind == "Rollout" and any(each.path.startswith("/spec/template") for each in patch.json6902)
