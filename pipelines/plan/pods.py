"""What of a fleet changes engines' pods, besides the engine itself: a part of what makes an engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from pipelines.errors import UntrustedImage
from rollouts.manifests.patches import PatchSpec
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Value
from tidegate.core.text import foreign


def pod_changes(fleet: ArgoFleetSpec) -> dict[str, JsonValue]:
    """As an engine's record keeps it; empty for none."""
    said: list[JsonValue] = [
        each.model_dump(mode="json", by_alias=True, exclude_unset=True) for each in fleet.patches if _of_pods(each)
    ]
    return {"patches": said} if said else {}


def with_pod_changes(fleet: ArgoFleetSpec, recorded: Mapping[str, JsonValue]) -> ArgoFleetSpec:
    """The fleet as it was when that was recorded, as far as it makes pods.

    Raises:
        UntrustedImage: no command of tidegate has recorded it so.
    """
    if pod_changes(fleet) == recorded:
        return fleet
    with foreign(lambda why: UntrustedImage(f"the recorded changes of an engine's pods cannot be read: {why}")):
        was = _Recorded.model_validate(recorded)
    others = (each for each in fleet.patches if not _of_pods(each))
    return fleet.model_copy(update={"patches": (*others, *was.patches)})


class _Recorded(Value):
    patches: tuple[PatchSpec, ...] = ()


def _of_pods(patch: PatchSpec) -> bool:
    return patch.target.kind in {None, "Rollout"} and any(
        each.path.startswith("/spec/template") for each in patch.json6902
    )
