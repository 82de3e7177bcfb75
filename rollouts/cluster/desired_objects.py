"""The objects that a version needs, and how they are applied so that no serving engine is lost.

Objects of others are not written to. A Service keeps as many engines as it selects. What was applied before a refusal
is put back, and what cannot be is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial

from rollouts.cluster.carrier import Fence
from rollouts.cluster.model import RegionConfig, launch_of, version_labels
from rollouts.cluster.region import live_objects, refuse_foreign
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import Conflict, FleetError, Forbidden, Invalid, NotFound, NotPossible, NotTheCarrier, Overruled
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at, is_ready, said, written
from rollouts.kube.resources import MANAGER, PODS, ROLLOUTS, SERVICES, resource_of
from rollouts.kube.retry import RetryPolicy
from rollouts.manifests.conventions import ATTEMPT, CARRIER, PREVIOUS, UNATTENDED
from rollouts.manifests.ownership import foreign_object, last_writer, with_preserved_fields
from rollouts.model import Engine
from tidegate.core.clock import Clock
from tidegate.core.errors import Refused, TidegateError
from tidegate.core.model import Json

KEPT = ("replicas", "paused", "restartAt")
"""Parts of a Rollout's spec that are others': the autoscaler's, and those of people at night."""


def is_deployed(snapshot: RegionSnapshot, engine: Engine) -> bool:
    """Whether that version is asked for already, as the stable one or on trial.

    One that was rolled back is not: it needs another try. Nor is one that never came up, whose image may be new. It is
    `NotPossible` with other files, from another image, or started in another way.
    """
    asked = snapshot.asked[:2] if snapshot.rollout and not snapshot.argo.aborted else None
    stable = (snapshot.stable.version, snapshot.stable.digest) if snapshot.stable else None
    known = [each for each in (asked, stable) if each and each[0] == engine.version]
    again = f"version {engine.version} is here already"
    if asked in known and stable and not _is_asked(snapshot, engine):
        image, hint = _image(snapshot), "roll it back first, or register a new version"
        how = "started with other arguments" if image == engine.image else f"from another image: {image}"
        raise NotPossible(f"{again}, {how}", hint=hint)
    if any(digest != engine.digest for _, digest in known):
        raise NotPossible(f"{again}, with other files", hint="register a new version")
    return bool(known) and (stable is not None or _is_asked(snapshot, engine))


def refuse_other_engine(snapshot: RegionSnapshot, engine: Engine) -> None:
    """Raise `Overruled` where somebody changed its image or its arguments before the controller saw ours."""
    if snapshot.asked[0] == engine.version and not _is_asked(snapshot, engine):
        who = last_writer(snapshot.rollout or {"metadata": {}}) or "somebody"
        raise Overruled(
            f"{who} changed Rollout {snapshot.argo.name}: version {engine.version} runs {_image(snapshot)}",
            hint="let one of the two own the Rollout: `tidegate rollout render --as argo-ignore`",
        )


def _is_asked(snapshot: RegionSnapshot, engine: Engine) -> bool:
    """Whether that very engine is asked for, though none of it has become stable."""
    return _image(snapshot) == engine.image and launch_of(snapshot.template) == engine.launch


def engine_of(snapshot: RegionSnapshot, version: str) -> Engine | None:
    """What the region's ReplicaSets know of a version: its image and its files' digest; None when none has it."""
    which = next((each for each in snapshot.revisions if each.version == version), None)
    if which is None:
        return None
    template = which.replica_set["spec"]["template"]
    name, image = snapshot.argo.name, str(template["spec"]["containers"][0].get("image", ""))
    return Engine(version=version, digest=which.digest, model=name, image=image, launch=launch_of(template))


def tried(rollout: Json, attempt: int) -> Json:
    """The Rollout with that attempt number in its pod template, so that a retried version gets a new hash."""
    changed = deepcopy(rollout)
    metadata = changed["spec"]["template"].setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ATTEMPT: str(attempt)}
    return changed


def replacement(rollout: Json, live: Json) -> Json:
    """The Rollout that replaces the live one: our fields from the manifest, those of others as they are.

    Written whole and only onto what was read: an apply would leave labels that an undo once brought back.
    """
    spec, metadata = live.get("spec") or {}, live["metadata"]
    kept = {key: spec[key] for key in KEPT if key in spec and key not in rollout["spec"]}
    annotations = {**(metadata.get("annotations") or {}), **rollout["metadata"].get("annotations", {})}
    # The way back stays noted, for when this trial is rolled back; but the same version on trial is no way back.
    if annotations.get(PREVIOUS) == version_labels(rollout["spec"]["template"])[0]:
        del annotations[PREVIOUS]
    # What became of a trial before says nothing of this one.
    annotations.pop(UNATTENDED, None)
    labels = {**(metadata.get("labels") or {}), **rollout["metadata"].get("labels", {})}
    applied = {**metadata, "labels": labels, "annotations": annotations}
    return {**live, "metadata": applied, "spec": {**rollout["spec"], **kept}}


def _image(snapshot: RegionSnapshot) -> str:
    return str(at(snapshot.template, "spec", "containers", 0, "image", default=""))


PUT_BACK_SECONDS = 60.0
"""How long a region that does not answer is asked to take something back."""

log = logging.getLogger(__name__)


class ApplyTransaction:
    """Applies the objects of one deploy, the Rollout last, and puts them back when it fails before that."""

    def __init__(self, config: RegionConfig, cluster: KubeClient, clock: Clock, *, fence: Fence) -> None:
        self._config, self._cluster, self._fence = config, cluster, fence
        self._retries = RetryPolicy(clock, seconds=PUT_BACK_SECONDS)
        self._sent: dict[str, tuple[Json, Json | None]] = {}
        """By kind and name what was sent, noted before, since an answer may be lost, and what was there at first."""
        self.committed = False
        """Whether all of it is applied."""

    async def apply(self, manifests: Sequence[Json]) -> None:
        """Apply these objects, each onto what is there; all are read before the first is written.

        Raises:
            NotOurs: one of them is somebody else's.
            NotTheCarrier: another process carries the delivery here by now.
            Refused: one is a Service, and would select fewer engines than it does.
            FleetError: one was refused, or nobody answered.
        """
        lives = await live_objects(self._cluster, manifests)
        refuse_foreign(self._config.region, *(foreign_object(live, self._config.name) for live in lives if live))
        for live in lives:
            self._fence.allows(live)
        # Onto the versions that were read, with the fields that others own.
        pairs = [(_reapplied(each, live) if live else each, live) for each, live in zip(manifests, lives, strict=True)]
        for wanted, live in pairs:
            if live is not None:
                await self._keep_engines(live, wanted)
        for wanted, live in pairs:
            self._sent.setdefault(said(wanted), (wanted, live))
            after = await self._cluster.apply(wanted, force=live is not None)
            if live is None:
                await self._require_new(after)

    async def apply_rollout(self, rollout: Json, live: Json | None) -> None:
        """Write the Rollout, whole, onto the one that was read."""
        self._sent.setdefault(said(rollout), (rollout, live))
        if live is None:
            await self._cluster.apply(rollout)
        else:
            await self._cluster.replace(ROLLOUTS, replacement(rollout, live))

    def commit(self) -> None:
        """All of it is applied, and stays."""
        self._sent.clear()
        self.committed = True

    async def put_back(self, why: TidegateError) -> None:
        """Undo what was applied, the last first, unless all of it was; the error says what could not be put back.

        A replaced carrier undoes nothing: its successor owns what is there, and applies it again or rolls back.
        """
        if isinstance(why, NotTheCarrier):
            return
        left: list[str] = []
        for name, (sent, before) in reversed(self._sent.items()):
            try:
                if await self._retries.run(partial(self._back, sent, before)):
                    return
            except FleetError as error:
                left.append(f"{name} ({error})")
        if left:
            told = f"could not be put back as it was: {', '.join(left)}"
            log.warning("%s: %s", self._config.region, told)
            why.hint = "; ".join(part for part in (why.hint, told) if part)

    async def _require_new(self, after: Json) -> None:
        """One that came about since the look is somebody's: unforced, nothing of it was changed, and ours goes."""
        if all(each.get("manager") == MANAGER for each in after["metadata"].get("managedFields") or []):
            return
        bare = {key: after[key] for key in ("apiVersion", "kind")}
        identity = {key: after["metadata"][key] for key in ("name", "namespace") if key in after["metadata"]}
        # What a manager applies no more goes, and what others said stays.
        await self._cluster.apply({**bare, "metadata": identity})
        raise Conflict(
            f"{after['kind']} {identity['name']} was created by somebody else meanwhile",
            hint="try again",
            status=409,
            reason="AlreadyExists",
        )

    async def _back(self, sent: Json, before: Json | None) -> bool:
        """Put one object back; true when it shows that all was said although no answer came."""
        (now,) = await live_objects(self._cluster, [sent])
        self._fence.allows(now)
        if now is None or foreign_object(now, self._config.name):
            return False
        resource, name = resource_of(now), now["metadata"]["name"]
        if sent["kind"] == ROLLOUTS.kind:
            return version_labels(now["spec"].get("template") or {}) == version_labels(sent["spec"]["template"])
        if before is None:
            with suppress(NotFound):
                await self._cluster.delete(resource, name)
        elif undone := _merge_patch(_ours(now), _ours(before)):
            if (writer := last_writer(now)) != MANAGER:
                raise NotPossible(f"written by {writer or 'somebody'} since", hint="put it back by hand")
            version = {"resourceVersion": now["metadata"]["resourceVersion"]}
            undone["metadata"] = {**undone.get("metadata", {}), **version}
            await self._cluster.patch(resource, name, undone)
        return False

    async def _keep_engines(self, live: Json, wanted: Json) -> None:
        if wanted["kind"] != SERVICES.kind:
            return
        old, new = (each["spec"].get("selector") or {} for each in (live, wanted))
        if not old or old == new:
            return
        has, would = await count_ready(self._cluster, old), await count_ready(self._cluster, new)
        if would < has:
            name = live["metadata"]["name"]
            raise Refused(
                f"{self._config.region}: Service {name} selects {has} engines that are ready, and would select {would}",
                hint=f"its selector was changed by {last_writer(live) or 'somebody'} to {written(old)}; nothing was "
                "written to it: restore the selector, or delete the Service once nobody needs it",
            )


async def count_ready(cluster: KubeClient, selector: Json) -> int:
    """How many ready pods a Service with that selector sends requests to; without one it selects none."""
    if not selector:
        return 0
    return sum(map(is_ready, await cluster.list(PODS, labels=written(selector))))


async def refusals(cluster: KubeClient, manifests: Sequence[Json]) -> list[str]:
    """What the API server has against these objects, by dry runs; nothing is said where nobody may ask."""
    found: list[str] = []
    for wanted, live in zip(manifests, await live_objects(cluster, manifests), strict=True):
        try:
            with suppress(Forbidden, NotFound):
                await cluster.apply(_reapplied(wanted, live) if live else wanted, force=True, dry_run=True)
        except Invalid as error:
            found.append(error.message)
    return found


def _reapplied(manifest: Json, live: Json) -> Json:
    version = {"resourceVersion": live["metadata"]["resourceVersion"]}
    return {**with_preserved_fields(manifest, live), "metadata": {**manifest["metadata"], **version}}


def _ours(live: Json) -> Json:
    """The fields that a deploy changes; the carrier's mark is not put back with the rest."""
    metadata = {key: dict(live["metadata"].get(key) or {}) for key in ("labels", "annotations")}
    metadata["annotations"].pop(CARRIER, None)
    return {"metadata": metadata, "spec": live.get("spec") or {}}


def _merge_patch(now: Json, before: Json) -> Json:
    """What makes `now` what it was before (RFC 7386)."""
    patch: Json = {key: None for key in now if key not in before}
    for key, value in before.items():
        if now.get(key) == value:
            continue
        both = isinstance(value, dict) and isinstance(now.get(key), dict)
        patch[key] = _merge_patch(now[key], value) if both else value
    return patch
