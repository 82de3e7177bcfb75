"""Which engine a delivery brings, and which one is in production: known by everything that makes them.

What of a fleet changes engines' pods is a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Literal

from pydantic import JsonValue, TypeAdapter

from pipelines.errors import UntrustedImage
from pipelines.spec.delivery import Delivery
from registry.conventions import ENGINE_IMAGE
from registry.model import EngineRecord, ModelVersion, Serving
from registry.versions import MlflowRegistry
from rollouts.manifests.patches import PatchSpec
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.text import foreign

JUDGED_ONLY = ("floor", "tolerance")
"""Of `compile`: what a build accepts, which changes no engine."""


def record_of(spec: Delivery, version: ModelVersion, tags: Mapping[str, str]) -> EngineRecord:
    """The engine of `version` by the spec as it is now, under the version's number; `tags` are the version's."""
    settings = spec.engine.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    own = spec.engine.image.reference if spec.engine.image else tags.get(ENGINE_IMAGE, "")
    image = own if isinstance(spec.fleet, ClusterFleetSpec) else ""
    pods = pod_changes(spec.fleet) if isinstance(spec.fleet, ArgoFleetSpec) else {}
    compiled, kept = settings.get("compile"), dict(settings)
    if isinstance(compiled, Mapping):
        kept["compile"] = {name: value for name, value in compiled.items() if name not in JUDGED_ONLY}
    fingerprint = _digest([kept, image, pods] if pods else [kept, image])
    return EngineRecord(name=version.version, fingerprint=fingerprint, settings=settings, image=image, pods=pods)


def _digest(said: object) -> str:
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def planned_engines(
    spec: Delivery, version: ModelVersion, champion: ModelVersion, tags: Mapping[str, Mapping[str, str]]
) -> tuple[EngineRecord, EngineRecord | None]:
    """What is delivered, and what the registry says is in production; None where nobody has recorded that.

    `champion` is the same version where the engine alone changes; `tags` are of both, by their numbers.

    Raises:
        UsageError: it is the same version, and with the same engine, or with one that is unknown.
    """
    wanted = record_of(spec, version, tags[version.version])
    serving = Serving.of(tags[champion.version]).now
    if version.version != champion.version:
        return wanted, serving
    if serving is None:
        raise UsageError(
            f"{version.uri} is the champion, and nobody has recorded which engine serves it",
            hint="deliver another version: from then on it is recorded",
        )
    if serving.fingerprint == wanted.fingerprint:
        raise UsageError(
            f"{version.uri} is the champion, and this very engine serves it: there is nothing to deliver",
            hint="change the spec's `engine` or a patch of its pods, or deliver another version",
        )
    name = f"{version.version}-{wanted.fingerprint[:8]}"
    return wanted.model_copy(update={"name": name}), serving


def serving_engine(
    spec: Delivery, champion: ModelVersion, registry: MlflowRegistry, note: Callable[[str], None]
) -> EngineRecord:
    """The champion's engine as it was recorded; where nobody has, the spec's, which is recorded now.

    What the spec says of `engine` by now reaches users by a delivery alone.
    """
    tags = registry.tags(champion)
    kept, asked = Serving.of(tags).now, record_of(spec, champion, tags)
    if kept is None:
        registry.mark(champion, Serving(now=asked).tag)
    elif kept.fingerprint != asked.fingerprint:
        changed = "; ".join(engine_changes(kept, asked))
        note(f"{champion.uri} is served by engine {kept.name}; `deliver` brings what the spec changes: {changed}")
    return kept or asked


def engine_changes(before: EngineRecord, after: EngineRecord) -> Iterator[str]:
    """What differs, a phrase for each: `vllm.args.max-num-seqs: 256 -> 8`."""
    # Pods by their digests: a patch has many lines.
    old, new = (
        dict(_flat(each.settings))
        | {"image": each.image}
        | {f"fleet.{name}": _digest(said)[:8] for name, said in each.pods.items()}
        for each in (before, after)
    )
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now:
            yield f"{name}: {_told(was)} -> {_told(now)}"


def _told(value: object) -> str:
    return "default" if value in (None, "") else str(value)


def _flat(part: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def pod_changes(fleet: ArgoFleetSpec) -> dict[str, JsonValue]:
    """As an engine's record keeps it; empty for none."""
    said: list[JsonValue] = [
        each.model_dump(mode="json", by_alias=True, exclude_unset=True) for each in fleet.patches if _changes_pods(each)
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
        was = TypeAdapter(dict[Literal["patches"], tuple[PatchSpec, ...]]).validate_python(recorded)
    others = (each for each in fleet.patches if not _changes_pods(each))
    return fleet.model_copy(update={"patches": (*others, *was.get("patches", ()))})


def _changes_pods(patch: PatchSpec) -> bool:
    return patch.target.kind in {None, "Rollout"} and any(
        each.path.startswith("/spec/template") for each in patch.json6902
    )
