"""`fleet.patches`: JSON patches (RFC 6902) of yours to what is rendered, applied last of all. Pure.

Fields of a delivery are nobody's to change. It is decided by what comes out: such a field has to be the same before
and after, however the patch is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from tidegate.core.model import Json, Loc, SpecConflict, SpecModel, Value
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


class Patched(Value):
    """What became of objects and patches."""

    objects: tuple[Json, ...]
    """Those of the call, in their order; one that a refused patch hit is as it was before that patch."""
    conflicts: tuple[SpecConflict, ...]
    """The first thing wrong of each patch that is refused, with its place below `patches`."""


Wrong = Callable[[Json], Iterable[tuple[Loc, str]]]
"""What is wrong with an object: places in it, with what was found there."""


def apply_patches(patches: Sequence[PatchSpec], objects: Iterable[Json], wrong: Wrong = lambda _: ()) -> Patched:
    """One patch after the other; `wrong` judges what each of them made of an object."""
    found, conflicts = list(objects), []
    for place, patch in enumerate(patches):
        for index, before in enumerate(found):
            if not patch.target.chooses(before):
                continue
            try:
                found[index] = _changed(before, patch, wrong)
            except _Refused as refused:
                where, told, expected = refused.args
                conflicts.append(SpecConflict((place, "json6902", *where), told, expected))
                break
    return Patched(objects=tuple(found), conflicts=tuple(conflicts))


class _Refused(Exception):
    """Where in the patch, what was found, and what would do."""


def _changed(before: Json, patch: PatchSpec, wrong: Wrong) -> Json:
    # Deliveries without patches do without the library.
    import jsonpatch
    from jsonpointer import JsonPointerException

    named, after = f"{before['kind']} {before['metadata']['name']}", before
    for place, operation in enumerate(patch.json6902):
        where, said = (place, "path"), operation.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            after = jsonpatch.apply_patch(after, [said])
        except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
            found = f"{operation.op} {operation.path}: {error}"
            raise _Refused(where, found, f"an operation that {named} takes") from None
        for at, instead in touched(before, after):
            raise _Refused(where, f"{field_path(before, at)} of {named}, which is a delivery's", instead)
    was = set(wrong(before))
    for at, message in wrong(after):
        if (at, message) not in was:
            raise _Refused(where, f"{field_path(after, at)} of {named}: {message}", f"what a {before['kind']} may say")
    return after


def schema_problems(seen: Json) -> Iterable[tuple[Loc, str]]:
    """Places and what is wrong there; none where what reads schemas is not installed: the API server says it later."""
    from rollouts.manifests.schema import problems_in

    try:
        return [(problem.where, problem.message) for problem in problems_in(seen)]
    except ImportError:
        return ()


def field_path(seen: Any, where: Loc) -> str:
    """As people write it: items of lists by their names."""
    path = ""
    for key in where:
        if isinstance(key, int):
            seen = seen[key] if isinstance(seen, list) and key < len(seen) else None
            path += f"[{seen.get('name', key) if isinstance(seen, dict) else key}]"
        else:
            seen = seen.get(key) if isinstance(seen, dict) else None
            path += f".{key}" if path else key
    return path


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
TriggerAuthentication: spec = fleet.regions.*.prometheus
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
            for at in _places(before, path):
                if _at(before, at) != _at(after, at):
                    yield tuple(key for key in at if key != "#"), instead
    for where in (("metadata",), ("spec", "template", "metadata")):
        for part in ("labels", "annotations"):
            was, now = (_at(each, (*where, part)) for each in (before, after))
            for key in now if isinstance(now, dict) else ():
                if key not in (was or {}) and key.startswith(RESERVED):
                    yield (*where, part, key), "a key of your own"


def _places(seen: Any, path: Sequence[str]) -> Iterator[Loc]:
    """Where the fields of a path are, in an object as it was."""
    if not path:
        yield ()
        return
    step, *rest = path
    keys: Iterable[str | int] = (step,)
    if step in {"*", "[]"}:
        keys = (seen or ()) if step == "*" else range(len(seen or ()))
    for key in keys:
        yield from ((key, *more) for more in _places(_at(seen, (key,)), rest))


def _at(part: Any, where: Loc) -> Any:
    for key in where:
        if isinstance(key, int):
            part = part[key] if isinstance(part, list) and key < len(part) else None
        elif key == "#":
            part = len(part) if isinstance(part, list) else None
        else:
            part = part.get(key) if isinstance(part, dict) else None
    return part
