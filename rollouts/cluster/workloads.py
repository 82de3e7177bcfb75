"""A workload of others behind a backend: fields of it that say a version, and whether it has come up. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollouts.errors import NotPossible
from rollouts.kube.objects import condition
from rollouts.manifests.reference_spec import filled
from rollouts.manifests.route_spec import WorkloadKind, WorkloadSpec
from rollouts.model import Engine
from tidegate.core.model import Json


def field_of(thing: Json, pointer: str) -> Any:
    """What stands there (RFC 6901); None where nothing does."""
    found: Any = thing
    for key in (each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]):
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return None
    return found


def changes(workload: Json, theirs: WorkloadSpec, engine: Engine, replicas: int) -> list[Json]:
    """JSON patch operations by which it serves that engine; none where it does.

    `replicas` is what it gets where it has none.

    Raises:
        NotPossible: a field is not there: nothing is added to an object of others.
    """
    wanted: dict[str, object] = {pointer: filled(text, engine) for pointer, text in theirs.set.items()}
    if not field_of(workload, theirs.replicas):
        wanted[theirs.replicas] = replicas
    if missing := [pointer for pointer in wanted if field_of(workload, pointer) is None]:
        raise NotPossible(
            f"{theirs.kind} {theirs.name} has no {', '.join(missing)}",
            hint="`workload.set` and `workload.replicas` name fields that it has",
        )
    return [
        {"op": "replace", "path": pointer, "value": value}
        for pointer, value in wanted.items()
        if field_of(workload, pointer) != value
    ]


def undone(workload: Json, operations: list[Json]) -> list[Json]:
    """The operations that give the fields what they had in `workload`."""
    return [{**each, "value": field_of(workload, each["path"])} for each in operations]


def what_is_missing(workload: Json, theirs: WorkloadSpec) -> str:
    """Why it does not serve what it is asked for yet; empty once it does, with all its engines."""
    return next(_missing(workload, theirs), "")


def _missing(workload: Json, theirs: WorkloadSpec) -> Iterator[str]:
    status, name = workload.get("status") or {}, f"{theirs.kind} {theirs.name}"
    if int(status.get("observedGeneration") or 0) < int(workload["metadata"].get("generation") or 0):
        silent = status and status.get("observedGeneration") is None
        yield (
            f"{name} has no status.observedGeneration, by which its controller says what it has seen: a newer one does"
            if silent
            else f"the controller of {name} has not seen what was asked"
        )
    if theirs.kind is WorkloadKind.LLM_INFERENCE_SERVICE:
        ready = condition(workload, "Ready") or {}
        if ready.get("status") != "True":
            yield f"{name}: {ready.get('reason') or 'not ready'}: {ready.get('message') or 'it says no more'}"
        return
    wanted = int(field_of(workload, theirs.replicas) or 0)
    for key in ("updatedReplicas", "readyReplicas"):
        if int(status.get(key) or 0) < wanted or not wanted:
            yield f"{name}: {int(status.get(key) or 0)} of {wanted} engines are {key.removesuffix('Replicas')}"
    # Those of the version before are still there.
    if int(status.get("replicas") or 0) > wanted:
        yield f"{name}: {status['replicas']} engines, and {wanted} are wanted"
