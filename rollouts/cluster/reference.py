"""A Rollout of others: which version a pod template serves, by fields that it has, and how these are changed. Pure.

Nothing is added to their template: with one label more their next `kubectl apply` would make a third version, which
serves users. What has to be remembered stands on the Lease, which is ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from jsonpointer import set_pointer

from rollouts.argo.model import WORKLOAD_GENERATION
from rollouts.errors import NotPossible
from rollouts.kube.objects import containers_of, owns_field
from rollouts.manifests.theirs_spec import RolloutReference, filled
from rollouts.model import Engine
from tidegate.core.model import Json, Value

TEMPLATE = ("f:spec", "f:template")
"""As field managers own it."""
KEPT = 20
"""Versions that the Lease remembers; a Rollout keeps ten revisions unless it says otherwise."""


class RegionNotes(Value):
    """What the Lease remembers of a Rollout of others."""

    versions: Mapping[str, tuple[str, str]] = {}
    """Version and digest by what the template's fields say (`told`), the oldest first."""
    template: str = ""
    """The digest of the pod template that an open delivery asked for last; empty while none is open."""
    previous: str = ""
    """The version that was stable before the last promotion."""

    def knowing(self, theirs: RolloutReference, *engines: Engine) -> RegionNotes:
        """The same, with these engines too."""
        new = {told(wanted_fields(theirs, each)): (each.version, each.digest) for each in engines}
        kept = {key: said for key, said in self.versions.items() if key not in new}
        return self.model_copy(update={"versions": dict(list({**kept, **new}.items())[-KEPT:])})


def told(fields: Mapping[str, str]) -> str:
    """What fields say, as one text."""
    return json.dumps(dict(sorted(fields.items())), separators=(",", ":"))


def wanted_fields(theirs: RolloutReference, engine: Engine) -> Mapping[str, str]:
    """What the fields say of a template that serves that engine, each by what it is called."""
    return {name: filled(text, engine) for name, text in theirs.set.fields.items()}


def version_in(template: Json, theirs: RolloutReference, notes: RegionNotes) -> tuple[str, str, int]:
    """Version and digest that a pod template serves; both empty where nobody has noted it. Each has one attempt."""
    said = {place.name: place.value for place in places(template, theirs)}
    version, digest = notes.versions.get(told(said), ("", ""))
    return version, digest, 1


def template_digest(template: Json) -> str:
    """The whole of a pod template, to be recognized."""
    return sha256(json.dumps(template, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def template_writers(thing: Json) -> list[Json]:
    """The entries of `metadata.managedFields` that own its pod template."""
    return [each for each in thing["metadata"].get("managedFields") or [] if owns_field(each, TEMPLATE)]


def with_workload(rollout: Json, workload: Json | None) -> Json:
    """The Rollout with its Deployment's pod template, generation and writers of it, as its controller resolves it.

    To be read, never to be written: the controller writes all of that there itself, a moment later.
    """
    if workload is None or "workloadRef" not in rollout["spec"]:
        return rollout
    theirs, asked, metadata = workload["spec"], workload["metadata"], rollout["metadata"]
    resolver = template_writers(rollout)
    writers = [each for each in metadata.get("managedFields") or [] if each not in resolver]
    writers += template_writers(workload)
    noted = {**(metadata.get("annotations") or {}), WORKLOAD_GENERATION: str(asked.get("generation", 0))}
    return {
        **rollout,
        "metadata": {**metadata, "annotations": noted, "managedFields": writers},
        "spec": {"selector": theirs["selector"], **rollout["spec"], "template": theirs["template"]},
    }


@dataclass(frozen=True)
class FieldPlace:
    """Where a field stands in a pod template, and what it says."""

    name: str
    path: str
    """As a JSON pointer below `/spec/template`."""
    value: str
    prefix: str = ""
    """Of what stands there, before the value: `--revision=`."""


def places(template: Json, theirs: RolloutReference) -> tuple[FieldPlace, ...]:
    """The fields that the template has, of those that the spec sets."""
    found, containers = list[FieldPlace | None](), containers_of(template)
    at = next((index for index, each in enumerate(containers) if each.get("name") == theirs.container), None)
    if at is None:
        return ()
    container, path = containers[at], f"/spec/containers/{at}"
    for name in theirs.set.fields:
        if name == "image":
            found.append(FieldPlace(name, f"{path}/image", str(container.get("image") or "")))
        elif name.startswith("$"):
            for index, each in enumerate(container.get("env") or []):
                if each.get("name") == name[1:] and "value" in each:
                    found.append(FieldPlace(name, f"{path}/env/{index}/value", str(each["value"])))
        else:
            found += (argument_place(container.get(part) or [], f"{path}/{part}", name) for part in ("args", "command"))
    return tuple(filter(None, found))


def argument_place(words: Sequence[Any], path: str, name: str) -> FieldPlace | None:
    """Where an argument's value stands among words that are at `path`; the last of them counts, as for vLLM."""
    found = None
    for index, word in enumerate(map(str, words)):
        if word.startswith(f"{name}="):
            found = FieldPlace(name, f"{path}/{index}", word[len(name) + 1 :], f"{name}=")
        elif word == name and index + 1 < len(words):
            found = FieldPlace(name, f"{path}/{index + 1}", str(words[index + 1]))
    return found


def missing_fields(template: Json, theirs: RolloutReference) -> tuple[str, ...]:
    """What the spec sets and the template has not, or not just once: nothing is added to a template of others."""
    found = [place.name for place in places(template, theirs)]
    return tuple(name for name in theirs.set.fields if found.count(name) != 1)


def field_patch(template: Json, theirs: RolloutReference, fields: Mapping[str, str]) -> list[Json]:
    """JSON patch operations on a Rollout by which its template says that; none where it does.

    Raises:
        NotPossible: the template has not all of the fields.
    """
    if missing := missing_fields(template, theirs):
        raise NotPossible(
            f"Rollout {theirs.name}: container {theirs.container} has no {', '.join(missing)}",
            hint="`fleet.rollout.set` names fields that its pod template has; `tidegate plan` says what to add",
        )
    return [
        {"op": "replace", "path": f"/spec/template{place.path}", "value": place.prefix + fields[place.name]}
        for place in places(template, theirs)
        if place.value != fields[place.name]
    ]


def with_fields(template: Json, theirs: RolloutReference, fields: Mapping[str, str]) -> Json:
    """The template as it is after `field_patch`."""
    changed: Json = {"template": deepcopy(template)}
    for operation in field_patch(template, theirs, fields):
        set_pointer(changed, operation["path"].removeprefix("/spec"), operation["value"])
    found: Json = changed["template"]
    return found
