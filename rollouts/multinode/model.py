"""A LeaderWorkerSet as the engines of one version. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.cluster.model import launch_of, version_labels
from rollouts.manifests.conventions import SET_NAME
from rollouts.model import ImageLaunch
from tidegate.core.model import Json


@dataclass(frozen=True)
class EngineGroups:
    """The engines of one version: each is a group of pods that live and die as one."""

    name: str
    version: str
    digest: str
    image: str
    launch: ImageLaunch | None
    wanted: int
    """Groups that it should have."""
    ready: int
    """Groups of which every pod is ready."""
    created: str
    """As the API server writes the time."""
    ending: bool
    """Whether it was deleted, and its pods finish their answers."""

    @property
    def is_complete(self) -> bool:
        """Whether all its engines are ready."""
        return 0 < self.wanted <= self.ready


def engine_groups(found: Json) -> EngineGroups:
    """What a LeaderWorkerSet is."""
    metadata, spec = found["metadata"], found["spec"]
    leader = spec["leaderWorkerTemplate"].get("leaderTemplate") or spec["leaderWorkerTemplate"]["workerTemplate"]
    version, digest, _ = version_labels(leader)
    return EngineGroups(
        name=str(metadata["name"]),
        version=version,
        digest=digest,
        image=str(leader["spec"]["containers"][0].get("image", "")),
        launch=launch_of(leader),
        wanted=int(spec.get("replicas", 1)),
        ready=int((found.get("status") or {}).get("readyReplicas") or 0),
        created=str(metadata.get("creationTimestamp") or ""),
        ending=bool(metadata.get("deletionTimestamp")),
    )


def set_of(pod: Json) -> str:
    """The name of the LeaderWorkerSet that a pod belongs to; empty for others' pods."""
    return str((pod["metadata"].get("labels") or {}).get(SET_NAME, ""))
