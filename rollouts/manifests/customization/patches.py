"""Applies `fleet.patches` to what is rendered, last of all, and says which of them cannot be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

from rollouts.manifests.customization.owned import touched
from rollouts.manifests.customization.spec import PatchSpec, PatchTarget
from tidegate.core.model import Json, Loc, SpecConflict, Value

Wrong = Callable[[Json], Iterable[tuple[Loc, str]]]
"""What is wrong with an object: places in it, with what was found there."""


class Patched(Value):
    """What became of objects and patches."""

    objects: tuple[Json, ...]
    """Those of the call, in their order; one that a refused patch hit is as it was before that patch."""
    hits: tuple[int, ...]
    """How many objects each patch has changed or left alike."""
    conflicts: tuple[SpecConflict, ...]
    """Each with its place below `patches`; a patch that hits nothing is none, since parts may be rendered alone."""


def apply_patches(patches: Sequence[PatchSpec], objects: Sequence[Json], wrong: Wrong = lambda _: ()) -> Patched:
    """One patch after the other, each on all its targets.

    Args:
        patches: of the spec.
        objects: as they were rendered.
        wrong: says what is wrong with an object; what a patch makes wrong is a conflict of it.
    """
    changed, hits, conflicts = list(objects), [], list[SpecConflict]()
    for place, patch in enumerate(patches):
        targets = [index for index, each in enumerate(changed) if _is_target(patch.target, each)]
        hits.append(len(targets))
        for index in targets:
            try:
                changed[index] = _applied(patch, changed[index], wrong)
            except _Refused as refused:
                conflicts.append(SpecConflict((place, *refused.where), refused.found, refused.expected))
                break
    return Patched(objects=tuple(changed), hits=tuple(hits), conflicts=tuple(conflicts))


class _Refused(Exception):
    """A patch cannot be applied; `where` is below it."""

    def __init__(self, where: Loc, found: str, expected: str) -> None:
        super().__init__(found)
        self.where, self.found, self.expected = where, found, expected


def _is_target(target: PatchTarget, seen: Json) -> bool:
    return bool(seen["kind"] == target.kind and target.name in {None, seen["metadata"]["name"]})


def _applied(patch: PatchSpec, before: Json, wrong: Wrong) -> Json:
    # Of specs with patches alone.
    import jsonpatch
    from jsonpointer import JsonPointerException

    after = deepcopy(before)
    for place, operation in enumerate(patch.json6902):
        where = ("json6902", place, "path")
        try:
            after = jsonpatch.apply_patch(after, [operation.as_json])
        except jsonpatch.JsonPatchTestFailed:
            raise _Refused(where, f"test {operation.path}", f"what {named(before)} has there") from None
        except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError):
            found = f"{operation.op} {operation.path}"
            raise _Refused(where, found, f"a place that {named(before)} has") from None
        for each in touched(before, after):
            found = f"{field_path(before, each.where)} of {named(before)}, which is a delivery's"
            raise _Refused(where, found, each.instead)
    was = set(wrong(before))
    for at, message in wrong(after):
        if (at, message) not in was:
            found = f"{field_path(after, at)} of {named(before)}: {message}"
            raise _Refused(where, found, f"what a {before['kind']} may say")
    return after


def named(seen: Json) -> str:
    """Kind and name."""
    return f"{seen['kind']} {seen['metadata']['name']}"


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
