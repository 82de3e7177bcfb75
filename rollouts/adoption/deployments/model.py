"""A Deployment and the Rollout next to it: whose the pods are, what was noted, and who else scales it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.adoption.deployments.handover import PodCounts
from rollouts.adoption.model import Place, before, made_for
from rollouts.argo.model import Rollout, controlled_by, hash_of
from rollouts.kube.objects import at, name_of, owned_by
from rollouts.kube.pods import is_pod_ready
from tidegate.core.model import Json

REPLICAS, ROLLOUT = "replicas", "rollout"
"""Keys of the note on a Deployment: how many pods it gets back, and which Rollout has its users."""


@dataclass(frozen=True)
class DeploymentPlace:
    """What stands in a region."""

    place: Place
    """The Rollout, and all that is there without a Deployment as well."""
    deployment: Json | None
    """That is adopted, or was; None where a Rollout alone is."""
    pods: Sequence[Json] = ()
    """Of the Deployment."""
    scalers: Sequence[Json] = ()
    """HorizontalPodAutoscalers and ScaledObjects that scale it."""
    budgets: Sequence[Json] = ()
    """PodDisruptionBudgets of the namespace."""

    @property
    def rollout(self) -> Json | None:
        """The Rollout, no matter whose it is."""
        return self.place.rollout

    @property
    def is_made(self) -> bool:
        """Whether the Rollout was made for this Deployment."""
        return self.deployment is not None and made_for(self.rollout) == name_of(self.deployment)

    @property
    def is_ours(self) -> bool:
        """Whether the Rollout is adopted."""
        return self.rollout is not None and before(self.rollout) is not None

    @property
    def noted(self) -> int | None:
        """The pods that the Deployment gets back; None while it never gave one away."""
        note = before(self.deployment) if self.deployment else None
        return int(note[REPLICAS]) if note and REPLICAS in note else None

    @property
    def wanted(self) -> int:
        """Ready pods that users have at each moment."""
        serving = Rollout(self.rollout).replicas if self.rollout and self.is_ours else 0
        asked = at(self.deployment, "spec", "replicas", default=1)
        return max(asked if self.noted is None else self.noted, serving)

    @property
    def deployed(self) -> PodCounts:
        """The Deployment and its pods."""
        return _side(at(self.deployment, "spec", "replicas", default=1), self.pods)

    @property
    def rolled(self) -> PodCounts:
        """The Rollout and its pods, without those of older versions; without one there are none."""
        argo = Rollout(self.rollout or {})
        pods = [pod for pod in self.place.pods if argo.pod_hash in {"", hash_of(pod)}]
        return _side(argo.replicas if self.rollout else 0, pods)


def noting(deployments: Sequence[Json], rollout: str) -> Json | None:
    """The Deployment that says that this Rollout has its users."""
    return next((each for each in deployments if (before(each) or {}).get(ROLLOUT) == rollout), None)


def pods_of(deployment: Json, replica_sets: Sequence[Json], pods: Sequence[Json]) -> list[Json]:
    """Its pods, of all its ReplicaSets."""
    own = controlled_by(deployment, replica_sets)
    return [pod for pod in pods if any(owned_by(pod, each) for each in own)]


def _side(replicas: int, pods: Sequence[Json]) -> PodCounts:
    return PodCounts(replicas=replicas, ready=sum(map(is_pod_ready, pods)), pods=len(pods))
