"""What is adopted, the writes that bring it about, and what an object was before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rollouts.kube.objects import at, labels_of
from rollouts.manifests.conventions import BEFORE_ADOPTION, DIGEST
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY_LABEL, REGION, VERSION

CREATED: Json = {"created": True}
"""What an object was before that came with the adoption: nothing."""
OURS = "tidegate.dev/"
"""Begins the keys of all our labels and annotations."""
OUR_LABELS = (DELIVERY, REGION, VERSION, MANAGED_BY_LABEL)
"""That an adopted object gets, by the adoption or by a later delivery."""


class AdoptedVersion(Value):
    """The model version that their pods serve."""

    delivery: str
    region: str
    version: str
    digest: str
    """Over the version's files, as the registry has it."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of its pods, besides their own."""
        return {DELIVERY: self.delivery, REGION: self.region, VERSION: self.version}

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of its pod template, besides its own."""
        return {DIGEST: self.digest}


class Verb(StrEnum):
    """How an object is written."""

    CREATE = "create"
    REPLACE = "replace"
    """The whole object, onto the version that was read."""
    PATCH = "patch"
    """A merge patch, onto the version that was read."""
    DELETE = "delete"


@dataclass(frozen=True)
class Write:
    """One write of an adoption, or of its opposite."""

    subject: str
    """Kind and name."""
    what: str
    """What becomes of it, as people read it."""
    verb: Verb
    live: Json
    """The object as it is; as it is to be created."""
    body: Json
    """What is sent: the whole object, or a merge patch."""


@dataclass(frozen=True)
class Place:
    """What stands in a region, as far as an adoption is concerned."""

    wanted: Sequence[Json]
    """The objects that a delivery applies there; the Rollout is last."""
    lives: Sequence[Json | None]
    """What is there under those kinds and names, in their order."""
    replica_sets: Sequence[Json]
    """That the Rollout controls."""
    pods: Sequence[Json]
    """Of those ReplicaSets."""
    services: Sequence[Json]
    """All of the namespace."""
    policies: Sequence[Json]
    """Network policies of the delivery: they hold for all pods that have its label."""
    lease: Json | None = None
    """Of the one who carries a delivery, or gives it back."""

    @property
    def rollout(self) -> Json | None:
        """The Rollout, no matter whose it is."""
        return self.lives[-1]

    @property
    def engine(self) -> tuple[str, str]:
        """Image of the pods that serve, and the hash of their template; empty where there is no Rollout."""
        template = at(self.rollout, "spec", "template", default={})
        return str(at(template, "spec", "containers", 0, "image", default="")), str(
            at(self.rollout, "status", "stableRS", default="")
        )

    def live(self, kind: str, name: str) -> Json | None:
        """What is there of that kind and name."""
        for wanted, live in zip(self.wanted, self.lives, strict=True):
            if (wanted["kind"], wanted["metadata"]["name"]) == (kind, name):
                return live
        return None


def before(live: Json) -> Json | None:
    """What an adopted object was; None for one that was not adopted, or whose note is no longer whole."""
    said = at(live, "metadata", "annotations", BEFORE_ADOPTION)
    try:
        found = json.loads(str(said)) if said else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def adopted(live: Json, delivery: str, spec: Json | None = None, **more: str) -> Json:
    """The object as this delivery's, with a note of what it was; with `spec` in place of its own where it is given.

    `more` is noted besides.
    """
    metadata = live["metadata"]
    noted = before(live) or {"labels": dict(labels_of(live)), "spec": live.get("spec") or {}, **more}
    annotations = {**(metadata.get("annotations") or {}), BEFORE_ADOPTION: json.dumps(noted, sort_keys=True)}
    marked = {**labels_of(live), DELIVERY: delivery}
    changed = {**metadata, "labels": marked, "annotations": annotations}
    return {**live, "spec": spec or live.get("spec") or {}, "metadata": changed}


def given_back(live: Json) -> Json:
    """The object as it was, with what others have done to its labels and annotations since."""
    noted = before(live) or {}
    metadata = live["metadata"]
    theirs = noted.get("labels") or {}
    labels = {key: value for key, value in labels_of(live).items() if key not in OUR_LABELS}
    labels |= {key: theirs[key] for key in OUR_LABELS if key in theirs}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(OURS)}
    changed = {**metadata, "labels": labels, "annotations": annotations}
    return {**live, "spec": noted.get("spec") or live.get("spec") or {}, "metadata": changed}
