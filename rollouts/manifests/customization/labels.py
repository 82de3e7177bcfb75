"""`fleet.labels` and `fleet.annotations`, on everything that is rendered and its pods; never in place of ours. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import reduce

from tidegate.core.model import Json, SpecConflict
from tidegate.core.names import RESERVED

_TEMPLATES = {
    "Rollout": (("template",),),
    "Deployment": (("template",),),
}
"""Where kinds that make pods have their templates, below `spec`."""


def labelled(seen: Json, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Json:
    """The object with both; what it says itself stays."""
    if not labels and not annotations:
        return seen
    changed = deepcopy({**seen, "metadata": _with(seen["metadata"], labels, annotations)})
    for where in _TEMPLATES.get(seen["kind"], ()):
        template = reduce(lambda part, key: part[key], where, changed["spec"])
        template["metadata"] = _with(template.get("metadata") or {}, labels, annotations)
    return changed


def _with(metadata: Json, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Json:
    said = {"labels": labels, "annotations": annotations}
    return {**metadata, **{part: {**theirs, **metadata.get(part, {})} for part, theirs in said.items() if theirs}}


def label_conflicts(
    labels: Mapping[str, str], annotations: Mapping[str, str], of_pods: Mapping[str, str]
) -> Iterator[SpecConflict]:
    """Keys that are not for people to set, and one that `pod.labels` sets otherwise; each with its place."""
    for part, said in {"labels": labels, "annotations": annotations}.items():
        for key in said:
            if key.startswith(RESERVED):
                yield SpecConflict((part, key), "a key that tidegate or Argo Rollouts sets", "a key of your own")
    for key, value in of_pods.items():
        if labels.get(key, value) != value:
            expected = f"{labels[key]}, as `labels` says, or another key"
            yield SpecConflict(("pod", "labels", key), value, expected)
