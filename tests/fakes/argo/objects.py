"""Rollouts and replica sets as the controller reads them: the spec with the controller's defaults.

Upstream: `utils/defaults/defaults.go`, `utils/replicaset/replicaset.go`, `utils/replicaset/canary.go`,
`utils/annotations/annotations.go`, `utils/hash/hash.go`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tidegate.core.model import Json

HASH_LABEL = "rollouts-pod-template-hash"
REVISION = "rollout.argoproj.io/revision"
EPHEMERAL_METADATA = "rollout.argoproj.io/ephemeral-metadata"
MANAGED_BY = "argo-rollouts.argoproj.io/managed-by-rollouts"
SCALE_DOWN_AT = "scale-down-deadline"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes makes hashes of: no vowels, so no words (`k8s.io/apimachinery/pkg/util/rand`)."""


def stamp(moment: datetime) -> str:
    """A time as the API server writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def safe_hash(value: object) -> str:
    """FNV-1a of 32 bits in safe letters, as `ComputePodTemplateHash` and `ComputeStepHash` have it.

    It hashes JSON, upstream hashes Go's view of the object: equal in shape and in stability, not in letters.
    """
    return _hash_of(json.dumps(value, sort_keys=True))


@lru_cache(4096)
def _hash_of(text: str) -> str:
    """Kept: each look at a Rollout hashes its template and its steps, a byte at a time."""
    fnv = 0x811C9DC5
    for byte in text.encode():
        fnv = ((fnv ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(SAFE_LETTERS[ord(digit) % len(SAFE_LETTERS)] for digit in str(fnv))


def controller_of(body: Json) -> Json | None:
    """The owner reference that is the controller's."""
    owners = body["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), None)


def annotate(body: Json, **annotations: str) -> None:
    body["metadata"]["annotations"] = (body["metadata"].get("annotations") or {}) | annotations


def reference_to(owner: Json) -> Json:
    """`metav1.NewControllerRef`."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Rollout:
    """A Rollout, its defaults filled in; `body` is what the API has."""

    def __init__(self, body: Json, workload: Json | None = None) -> None:
        self.workload = workload
        self._own = body["spec"] if workload is None else workload["spec"]
        self.read(body)

    def read(self, body: Json) -> None:
        """Be as it is now."""
        metadata, spec = body["metadata"], body["spec"]
        status: Json = body.setdefault("status", {})
        self.body, self.spec, self.status = body, spec, status
        self.name, self.namespace = str(metadata["name"]), str(metadata.get("namespace", ""))
        self.generation = int(metadata.get("generation", 0))
        self.annotations: dict[str, str] = metadata.get("annotations") or {}
        self.revision = int(self.annotations.get(REVISION, 0))
        self.template: Json = self._own["template"]
        """Its own, or that of the workload it refers to; its selector too."""
        self.selector: Json = spec.get("selector") or self._own.get("selector") or {}
        self.strategy: Json = spec["strategy"].get("canary") or {}
        """Of a canary: another one is not simulated."""
        self.replicas, self.paused = int(spec.get("replicas", 1)), bool(spec.get("paused"))
        self.steps: list[Json] = self.strategy.get("steps", [])
        self.step_index = int(status.get("currentStepIndex", 0)) if self.steps else None
        """None when there are no steps."""
        index = self.step_index
        self.step = self.steps[index] if index is not None and index < len(self.steps) else None
        """None when there are no steps, or all are behind it (`GetCurrentCanaryStep`)."""
        self.stable_hash, self.current_hash = str(status.get("stableRS", "")), str(status.get("currentPodHash", ""))
        self.fully_promoted = self.stable_hash == self.current_hash
        """`IsFullyPromoted`: also true before anything was deployed."""
        self.weights: Json | None = status.get("canary", {}).get("weights")
        self.aborted, self.promoting_fully = bool(status.get("abort")), bool(status.get("promoteFull"))
        self.scale_down_delay = timedelta(seconds=self.strategy.get("scaleDownDelaySeconds", 30))
        """30 s by default."""
        seconds = self.strategy.get("abortScaleDownDelaySeconds", 30)
        self.abort_scale_down_delay = timedelta(seconds=seconds) if seconds else None
        """30 s by default; None, which is 0 in the spec: an aborted canary stays up for ever."""

    @property
    def traffic(self) -> Json:
        traffic: Json = self.strategy["trafficRouting"]
        return traffic

    @property
    def pod_hash(self) -> str:
        """Of the template as it is desired now."""
        return safe_hash(self.template)

    @property
    def step_hash(self) -> str:
        return safe_hash(self.steps)


class ReplicaSet:
    """A ReplicaSet; `body` is what the API has."""

    def __init__(self, body: Json) -> None:
        self.read(body)

    def read(self, body: Json) -> None:
        """Be as it is now."""
        metadata, status = body["metadata"], body.get("status", {})
        self.body, self.name = body, str(metadata["name"])
        self.hash = str(metadata.get("labels", {}).get(HASH_LABEL, ""))
        self.annotations: dict[str, str] = metadata.get("annotations") or {}
        self.replicas = int(body["spec"].get("replicas", 1))
        """Desired."""
        self.actual, self.ready, self.available = (
            int(status.get(key, 0)) for key in ("replicas", "readyReplicas", "availableReplicas")
        )

    @property
    def created(self) -> datetime:
        return moment_of(self.body["metadata"]["creationTimestamp"])

    @property
    def revision(self) -> int:
        return int(self.annotations.get(REVISION, 0))

    @property
    def scale_down_at(self) -> datetime | None:
        text = self.annotations.get(SCALE_DOWN_AT)
        return moment_of(text) if text else None

    @property
    def injected(self) -> Json | None:
        """The labels and annotations that the controller put into its template (`ParseExistingPodMetadata`)."""
        text = self.annotations.get(EPHEMERAL_METADATA)
        return json.loads(text) if text else None
