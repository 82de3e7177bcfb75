"""A pod template of theirs as the base of engines' pods: `fleet.template`. Pure.

Ours is merged onto theirs: what both say is ours, and what theirs says besides stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollouts.manifests.conventions import ENGINE
from rollouts.manifests.customization.merge import merged
from tidegate.core.model import Json
from tidegate.core.names import RESERVED
from tidegate.core.spec import Problem, SpecError, parse_mapping

KINDS: Mapping[str, tuple[str, ...]] = {
    "PodTemplate": ("template",),
    "Deployment": ("spec", "template"),
    "Rollout": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
}
"""Of an object with a pod template, and where it has it."""


def pod_template_in(text: str, file: str, container: str) -> Json:
    """The pod template that a file has, as an object of Kubernetes.

    Args:
        text: of the file.
        file: its name, for what is told.
        container: which of its containers is the engine.

    Raises:
        SpecError: it is no YAML, no such object, has labels that are not for people to set, or no such container.
    """
    document = parse_mapping(text, file=file)
    where = KINDS.get(str(document.content.get("kind", "")))
    if where is None:
        found = document.content.get("kind", "no kind")
        raise SpecError([document.problem(("kind",), str(found), f"one of {', '.join(KINDS)}")])
    template = _at(document.content, where)
    containers = _at(template, ("spec", "containers"))
    problems: list[Problem] = []
    if not isinstance(containers, list) or not containers:
        problems.append(document.problem((*where, "spec", "containers"), "no containers", "a pod's containers"))
    elif container not in (names := [str(_at(each, ("name",))) for each in containers]):
        expected = f"{container}, as `fleet.template.container` says"
        problems.append(document.problem((*where, "spec", "containers"), ", ".join(names), expected))
    for part in ("labels", "annotations"):
        for key in _at(template, ("metadata", part)) or {}:
            if str(key).startswith(RESERVED):
                place = (*where, "metadata", part, key)
                problems.append(document.problem(place, "a key that tidegate or Argo Rollouts sets", "none"))
    if problems:
        raise SpecError(problems)
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations") if _at(template, ("metadata", key))}
    return {"metadata": metadata, "spec": template["spec"]}


def onto(theirs: Json, ours: Json, container: str) -> Json:
    """Their pod template with ours in it: the engine first, the rest of theirs after it."""
    (engine,) = ours["spec"]["containers"]
    spec = {
        **theirs["spec"],
        "containers": [_under(engine, each) if each.get("name") == container else each for each in _containers(theirs)],
        "volumes": _besides(theirs["spec"], ours["spec"], "volumes"),
    }
    tolerations = [*(spec.get("tolerations") or ()), *ours["spec"].get("tolerations", ())]
    together = merged({**theirs, "spec": spec}, ours)
    pod = together["spec"]
    pod["containers"] = sorted(pod["containers"], key=lambda each: each.get("name") != ENGINE)
    if tolerations:
        pod["tolerations"] = [each for place, each in enumerate(tolerations) if each not in tolerations[:place]]
    return together


_OURS = ("command", "args", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "ports")
"""Of a container: how the engine is started, asked and ended, which no two may say together."""


def _under(engine: Json, seen: Json) -> Json:
    """Their container, as ours is merged onto it."""
    kept = {key: value for key, value in seen.items() if key not in _OURS}
    return {**kept, "name": ENGINE, "env": _besides(seen, engine, "env")}


def _besides(theirs: Json, ours: Json, key: str) -> list[Any]:
    """Items of theirs of other names than ours: two sources of one variable or volume are none."""
    names = {each["name"] for each in ours.get(key) or ()}
    return [each for each in theirs.get(key) or () if each.get("name") not in names]


def _containers(template: Json) -> list[Any]:
    found: list[Any] = template["spec"]["containers"]
    return found


def _at(part: Any, where: tuple[str, ...]) -> Any:
    for key in where:
        part = part.get(key) if isinstance(part, Mapping) else None
    return part
