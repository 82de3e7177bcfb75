"""Whether a fleet's patches fit what is rendered. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import JsonValue

from pipelines.plan.prebuilt import image_launch
from pipelines.plan.region_objects import region_objects, region_release
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trust
from rollouts.manifests.admission import images_from
from rollouts.manifests.patches import PatchSpec, PatchTarget, apply_patches
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.errors import UsageError
from tidegate.core.model import Json, SpecConflict

_DIGEST = "0" * 64


def customization_conflicts(spec: Delivery, trust: Trust) -> Iterator[SpecConflict]:
    """Patches that hit nothing or change what is a delivery's, images and Secrets that the operator did not allow."""
    fleet = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec) or not fleet.patches:
        return
    seen: list[Json] = []
    for region in fleet.regions:
        try:
            # Of some version: patches are about none in particular.
            launch = image_launch(spec, fleet, spec.engine, version="1", digest=_DIGEST)
            image = f"any@sha256:{_DIGEST}"
            engine = Engine(version="1", digest=_DIGEST, model=spec.model.name, image=image, launch=launch)
            release = region_release(spec, region, engine, public_keys="some key")
            objects = region_objects(spec, fleet.model_copy(update={"patches": ()}), release).objects
        except UsageError:
            # What cannot be rendered is wrong elsewhere, and told there.
            return
        _, found = apply_patches(fleet.patches, objects)
        if conflicts := (*found, *_not_allowed(fleet.patches, objects, trust)):
            yield from (replace(each, where=("fleet", "patches", *each.where)) for each in conflicts)
            return
        seen += objects
    for place, patch in enumerate(fleet.patches):
        if not any(patch.target.chooses(each) for each in seen):
            yield _hits_nothing(place, patch.target, seen)


def _not_allowed(patches: Sequence[PatchSpec], objects: Sequence[Json], trust: Trust) -> Iterator[SpecConflict]:
    repositories = trust.engines.images
    images = {image for each in objects for image in _images(each)}
    secrets = {secret for each in objects for secret in _secrets(each)} | {*trust.spec.secrets}
    for place in range(len(patches)):
        # After those before it, which it may stand on; the first that brings something is named.
        for each in apply_patches(patches[: place + 1], objects)[0]:
            for image in _images(each):
                if image not in images and repositories and not re.match(images_from(repositories), image):
                    expected = f"an image by digest from {', '.join(repositories)}, as `engines.images` of trust.yaml"
                    yield SpecConflict((place,), f"a container of {image}", expected)
                    return
            for secret in sorted({*_secrets(each)} - secrets):
                expected = f"none, or {secret} under `spec.secrets` of trust.yaml"
                yield SpecConflict((place,), f"the Secret {secret}", expected)
                return


def _secrets(seen: JsonValue) -> Iterator[str]:
    """Secrets that an object or a part of it names: `secretName`, `secretKeyRef`, `imagePullSecrets` and their like."""
    if isinstance(seen, list):
        for each in seen:
            yield from _secrets(each)
    elif isinstance(seen, dict):
        for key, value in seen.items():
            if "secret" in key.lower():
                for each in value if isinstance(value, list) else [value]:
                    name = each.get("secretName", each.get("name")) if isinstance(each, dict) else each
                    yield from [name] if isinstance(name, str) else ()
            if key != "metadata":
                yield from _secrets(value)


def _images(seen: Json) -> Iterator[str]:
    """What containers of its pods run."""
    pod = ((seen.get("spec") or {}).get("template") or {}).get("spec") or {}
    for containers in ("containers", "initContainers"):
        yield from (str(each.get("image", "")) for each in pod.get(containers) or ())


def _hits_nothing(place: int, target: PatchTarget, seen: Sequence[Json]) -> SpecConflict:
    where, kinds = ("fleet", "patches", place, "target"), sorted({each["kind"] for each in seen})
    if target.kind and target.kind not in kinds:
        return SpecConflict((*where, "kind"), f"{target.kind}, of which nothing is rendered", ", ".join(kinds))
    of_kind = PatchTarget(kind=target.kind)
    names = sorted({each["metadata"]["name"] for each in seen if of_kind.chooses(each)})
    found = f"{target.name}, which no rendered {target.kind or 'object'} is called"
    return SpecConflict((*where, "name"), found, " or ".join(names))
