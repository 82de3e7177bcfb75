"""What is asked of the cluster when a version is to be served there. Pure."""

from __future__ import annotations

from copy import deepcopy

from rollouts.argo.revisions import controlled_by
from rollouts.cluster.revisions import labelled, revision
from rollouts.cluster.seen import Seen
from rollouts.errors import NotPossible
from rollouts.kube.model import Json
from rollouts.manifests.conventions import ATTEMPT, PREVIOUS
from rollouts.manifests.living import carried_over
from rollouts.model import Engine

KEPT = ("replicas", "paused", "restartAt")
"""Parts of a Rollout's spec that are others': the autoscaler's, and those of people at night."""


def is_here(seen: Seen, engine: Engine) -> bool:
    """Whether that version is asked for already, as the stable one or on trial.

    One that was taken back is not: it needs another try. Nor is one that never came up, whose image may be new.

    Raises:
        NotPossible: when it is, with other files or from another image.
    """
    version, digest, _ = seen.asked
    asked_now = seen.rollout and not seen.argo.aborted and version == engine.version
    if asked_now and seen.stable is not None and _image(seen) != engine.image:
        raise NotPossible(
            f"version {engine.version} is here already, from another image: {_image(seen)}",
            hint="take it back first, or register a new version",
        )
    known = [(version, digest)] if seen.rollout and not seen.argo.aborted else []
    if seen.stable:
        known.append((seen.stable.version, seen.stable.digest))
    for theirs, files in known:
        if theirs == engine.version and files != engine.digest:
            raise NotPossible(
                f"version {engine.version} is here already, with other files", hint="register a new version"
            )
    here = [theirs for theirs, _ in known]
    return engine.version in here and (seen.stable is not None or _image(seen) == engine.image)


def engine_of(seen: Seen, version: str) -> Engine | None:
    """What the region's ReplicaSets know of a version: its image and its files' digest; None when none has it."""
    if seen.rollout is None:
        return None
    known = [(revision(each), each["spec"]["template"]) for each in controlled_by(seen.rollout, seen.replica_sets)]
    found = [(which, template) for which, template in known if which.version == version]
    if not found:
        return None
    which, template = max(found, key=lambda each: each[0].number)
    image = str(template["spec"]["containers"][0].get("image", ""))
    return Engine(version=version, digest=which.digest, model=seen.argo.name, image=image)


def numbered(rollout: Json, attempt: int) -> Json:
    """The same Rollout for the so-manieth try of its version, which makes another template of it."""
    changed = deepcopy(rollout)
    metadata = changed["spec"]["template"].setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ATTEMPT: str(attempt)}
    return changed


def succeeding(rollout: Json, live: Json) -> Json:
    """What replaces the Rollout that is there: all that is ours to say, and what is others' as it is.

    Written whole and only onto what was looked at: an apply would leave labels that an undo once brought back.
    """
    spec, metadata = live.get("spec") or {}, live["metadata"]
    kept = {key: spec[key] for key in KEPT if key in spec and key not in rollout["spec"]}
    annotations = dict(metadata.get("annotations") or {})
    # The way back stays noted, for when this trial is taken back; but the same version on trial is no way back.
    if annotations.get(PREVIOUS) == labelled(rollout["spec"]["template"])[0]:
        del annotations[PREVIOUS]
    labels = {**(metadata.get("labels") or {}), **rollout["metadata"].get("labels", {})}
    said = {**metadata, "labels": labels, "annotations": annotations}
    return {**live, "metadata": said, "spec": {**rollout["spec"], **kept}}


def said_again(manifest: Json, live: Json | None) -> Json:
    """An object as it is applied: onto what was looked at, with what others have written into it since."""
    if live is None:
        return manifest
    version = {"resourceVersion": live["metadata"]["resourceVersion"]}
    return {**carried_over(manifest, live), "metadata": {**manifest["metadata"], **version}}


def remembering(seen: Seen, version: str | None) -> Json:
    """A merge patch that notes which version was stable before; None forgets it."""
    metadata = {"resourceVersion": seen.argo.resource_version, "annotations": {PREVIOUS: version}}
    return {"metadata": metadata}


def _image(seen: Seen) -> str:
    containers = ((seen.argo.spec.get("template") or {}).get("spec") or {}).get("containers") or [{}]
    return str(containers[0].get("image", ""))
