"""`fleet.patches`: JSON patches (RFC 6902) of yours to what is rendered, applied last of all. Pure.

Fields of a delivery are nobody's to change. It is decided by what comes out: such a field has to be the same before
and after, however the patch is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from rollouts.kube.objects import at
from tidegate.core.model import Json, Loc, SpecConflict, SpecModel
from tidegate.core.names import RESERVED

Pointer = Annotated[str, Field(pattern=r"^(/([^~/]|~0|~1)*)+$")]
"""A place in an object (RFC 6901), such as /spec/template/spec/hostNetwork; not the whole object."""


class PatchTarget(SpecModel):
    """Which of the rendered objects are changed."""

    kind: str | None = Field(default=None, pattern=r"^[A-Z][A-Za-z0-9]*$")
    """Of an object, such as Rollout; all objects when absent."""
    name: str | None = Field(default=None, pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    """All of the kind when absent."""

    def chooses(self, seen: Json) -> bool:
        """Whether it is about that object."""
        return self.kind in {None, seen["kind"]} and self.name in {None, seen["metadata"]["name"]}


class JsonPatchOperation(SpecModel):
    """One change at one place."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: Pointer
    origin: Pointer | None = Field(default=None, alias="from")
    """Of `move` and `copy`."""
    value: JsonValue = None
    """Of `add`, `replace` and `test`."""


class PatchSpec(SpecModel):
    """One change of some of the rendered objects."""

    target: PatchTarget = PatchTarget()
    json6902: tuple[JsonPatchOperation, ...] = Field(min_length=1)
    """Operations, one after the other."""


def apply_patches(
    patches: Sequence[PatchSpec], objects: Iterable[Json]
) -> tuple[tuple[Json, ...], tuple[SpecConflict, ...]]:
    """One patch after the other. Whether a kind has a field is for the API server to say.

    Returns the objects, in their order, each as it was before a patch that is refused; and the first thing wrong of
    each such patch, with its place below `patches`.
    """
    found, conflicts = list(objects), list[SpecConflict]()
    for place, patch in enumerate(patches):
        for index, before in enumerate(found):
            after = _changed(before, patch, (place, "json6902")) if patch.target.chooses(before) else before
            if isinstance(after, SpecConflict):
                conflicts.append(after)
                break
            found[index] = after
    return tuple(found), tuple(conflicts)


def _changed(before: Json, patch: PatchSpec, place: Loc) -> Json | SpecConflict:
    # Deliveries without patches do without the library.
    import jsonpatch
    from jsonpointer import JsonPointerException

    named, after = f"{before['kind']} {before['metadata']['name']}", before
    for number, operation in enumerate(patch.json6902):
        where = (*place, number, "path")
        try:
            after = jsonpatch.apply_patch(after, [operation.model_dump(mode="json", by_alias=True, exclude_unset=True)])
        except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
            found = f"{operation.op} {operation.path}: {error}"
            return SpecConflict(where, found, f"an operation that {named} takes")
        for at_place, instead in touched(before, after):
            found = f"{field_path(before, at_place)} of {named}, which is a delivery's"
            return SpecConflict(where, found, instead)
    return after


def field_path(seen: Any, where: Loc) -> str:
    """As people write it: items of lists by their names."""
    path = ""
    for end, key in enumerate(where, start=1):
        name = at(seen, *where[:end], "name", default=key) if isinstance(key, int) else ""
        path += f"[{name}]" if isinstance(key, int) else f".{key}"
    return path.removeprefix(".")


_OWNED = """
any: apiVersion, kind, metadata name, metadata labels *, metadata annotations *, status
any: metadata namespace = fleet.namespace
Rollout: spec selector, spec workloadRef, spec paused, spec restartAt, spec progressDeadlineAbort
Rollout: spec replicas = fleet.replicas
Rollout: spec strategy = stages
Rollout: spec rollbackWindow, spec revisionHistoryLimit = fleet.previous
Rollout: spec progressDeadlineSeconds = fleet.pod.start_within
Deployment: spec selector
pods: metadata labels *, metadata annotations *, spec automountServiceAccountToken, spec volumes []
pods: spec serviceAccountName = fleet.pod.service_account
pods: spec terminationGracePeriodSeconds = fleet.pod.drain
pods: spec nodeSelector * = fleet.nodes
containers: name, command, env [], envFrom, ports [], volumeMounts []
containers: image = engine.image
containers: args = engine.vllm.args
containers: resources limits nvidia.com/gpu, resources requests nvidia.com/gpu = engine.accelerator_count
Service: spec selector, spec ports, spec type, spec externalIPs, spec externalName
HTTPRoute: spec rules #, spec rules [] name
HTTPRoute: spec parentRefs, spec hostnames = fleet.gateway
HTTPRoute: spec rules [] backendRefs = stages
VirtualService: spec tcp, spec tls, spec http #, spec http [] name, spec http [] redirect, spec http [] delegate
VirtualService: spec gateways, spec hosts = fleet.gateway
VirtualService: spec http [] route, spec http [] mirror, spec http [] mirrors, spec http [] mirrorPercentage = stages
PodDisruptionBudget: spec selector
NetworkPolicy: spec podSelector
ScaledObject: spec scaleTargetRef
PodMonitor: spec selector
PodMonitor: spec podMetricsEndpoints = metrics
NodePool: spec template metadata labels * = fleet.nodes
AnalysisTemplate: spec = slos
ConfigMap: data, binaryData
ServiceAccount: automountServiceAccountToken
Role: rules
ClusterRole: rules, aggregationRule
RoleBinding: roleRef, subjects
ClusterRoleBinding: roleRef, subjects
ValidatingAdmissionPolicy: spec
ValidatingAdmissionPolicyBinding: spec
"""
"""What is a delivery's, by kind, and the field of the spec that says it. `[]` is every item of a list that was there,
which stay in their order and before all others; `#` the number of items; `*` every key that was there."""


def _owned() -> Iterator[tuple[str, list[str], str]]:
    """Kind, path and what says it instead."""
    inside = {
        "pods": ("spec template",),
        "containers": ("spec template spec containers []", "spec template spec initContainers []"),
    }
    for line in _OWNED.strip().splitlines():
        whose, _, said = line.partition(": ")
        paths, _, instead = said.partition(" = ")
        told = f"`{instead}`" if instead else "a field that no delivery needs"
        for kind in ("Rollout", "Deployment") if whose in inside else (whose,):
            for before in inside.get(whose, ("",)):
                yield from ((kind, f"{before} {path}".split(), told) for path in paths.split(", "))


OWNED = tuple(_owned())


def touched(before: Json, after: Json) -> Iterator[tuple[Loc, str]]:
    """Every field of the delivery's in which the two differ, and every reserved key that came with the second; with
    what to change instead.
    """
    for kind, path, instead in OWNED:
        if kind in {"any", before["kind"]}:
            for where in _places(before, path):
                if _value(before, where) != _value(after, where):
                    yield tuple(key for key in where if key != "#"), instead
    for place in (("metadata",), ("spec", "template", "metadata")):
        for part in ("labels", "annotations"):
            was, now = (at(each, *place, part, default={}) for each in (before, after))
            for key in now if isinstance(now, dict) else ():
                if key not in was and key.startswith(RESERVED):
                    yield (*place, part, key), "a key of your own"


def _places(seen: Any, path: Sequence[str]) -> Iterator[Loc]:
    """Where the fields of a path are, in an object as it was."""
    if not path:
        yield ()
        return
    step, *rest = path
    keys: Iterable[str | int] = (seen or ()) if step == "*" else range(len(seen or ())) if step == "[]" else (step,)
    for key in keys:
        yield from ((key, *more) for more in _places(at(seen, key), rest))


def _value(seen: Json, where: Loc) -> Any:
    if where[-1] != "#":
        return at(seen, *where)
    items = at(seen, *where[:-1])
    return len(items) if isinstance(items, list) else None
