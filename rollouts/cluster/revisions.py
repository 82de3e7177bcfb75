"""The versions of a region: what its ReplicaSets say of themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rollouts.argo.model import as_time, revision_of
from rollouts.argo.revisions import hash_of
from rollouts.kube.model import Json
from rollouts.manifests.conventions import ATTEMPT, DIGEST, VERSION

SCALE_DOWN_DEADLINE = "scale-down-deadline"
"""Argo Rollouts' annotation on a ReplicaSet that goes later (`DefaultReplicaSetScaleDownDeadlineAnnotationKey`)."""


@dataclass(frozen=True)
class Revision:
    """A version that has, or had, engines in the region."""

    hash: str
    version: str
    digest: str
    number: int
    """Of the Rollout's revision; the latest is the highest."""
    attempt: int
    wanted: int
    """Engines that it should have now; 0 for one that is history."""
    available: int
    """Engines that are ready now."""

    ends: datetime | None = None
    """When the controller takes its engines away; None while it does not mean to."""

    @property
    def whole(self) -> bool:
        """Whether all the engines that it should have are ready."""
        return 0 < self.wanted <= self.available


def revision(replica_set: Json) -> Revision:
    """What a ReplicaSet is."""
    version, digest, attempt = labelled(replica_set["spec"]["template"])
    return Revision(
        hash=hash_of(replica_set),
        version=version,
        digest=digest,
        number=revision_of(replica_set),
        attempt=attempt,
        wanted=int(replica_set["spec"].get("replicas") or 0),
        available=int((replica_set.get("status") or {}).get("availableReplicas") or 0),
        ends=as_time((replica_set["metadata"].get("annotations") or {}).get(SCALE_DOWN_DEADLINE)),
    )


def labelled(template: Json) -> tuple[str, str, int]:
    """Version, digest and attempt of a pod template."""
    metadata = template.get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return labels.get(VERSION, ""), annotations.get(DIGEST, ""), int(annotations.get(ATTEMPT) or 1)


def next_attempt(version: str, known: Iterable[Revision]) -> int:
    """The number of the next trial of a version: one more than any that the region remembers."""
    return max((each.attempt for each in known if each.version == version), default=0) + 1
