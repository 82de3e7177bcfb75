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
        self.body = body
        self.workload = workload
        self._own = body["spec"] if workload is None else workload["spec"]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"].get("namespace", ""))

    @property
    def generation(self) -> int:
        return int(self.body["metadata"].get("generation", 0))

    @property
    def annotations(self) -> dict[str, str]:
        return self.body["metadata"].get("annotations") or {}

    @property
    def revision(self) -> int:
        return int(self.annotations.get(REVISION, 0))

    @property
    def spec(self) -> Json:
        spec: Json = self.body["spec"]
        return spec

    @property
    def status(self) -> Json:
        status: Json = self.body.setdefault("status", {})
        return status

    @property
    def template(self) -> Json:
        """The pod template: its own, or that of the workload it refers to."""
        template: Json = self._own["template"]
        return template

    @property
    def selector(self) -> Json:
        """Its own, or that of the workload it refers to."""
        return self.spec.get("selector") or self._own.get("selector") or {}

    @property
    def strategy(self) -> Json:
        """Of a canary: another one is not simulated."""
        strategy: Json = self.spec["strategy"].get("canary") or {}
        return strategy

    @property
    def traffic(self) -> Json:
        traffic: Json = self.strategy["trafficRouting"]
        return traffic

    @property
    def dynamic(self) -> bool:
        return bool(self.strategy.get("dynamicStableScale"))

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def paused(self) -> bool:
        return bool(self.spec.get("paused"))

    @property
    def steps(self) -> list[Json]:
        steps: list[Json] = self.strategy.get("steps", [])
        return steps

    @property
    def step_index(self) -> int | None:
        """None when there are no steps."""
        return int(self.status.get("currentStepIndex", 0)) if self.steps else None

    @property
    def step(self) -> Json | None:
        """None when there are no steps, or all are behind it (`GetCurrentCanaryStep`)."""
        index = self.step_index
        return self.steps[index] if index is not None and index < len(self.steps) else None

    @property
    def stable_hash(self) -> str:
        return str(self.status.get("stableRS", ""))

    @property
    def current_hash(self) -> str:
        return str(self.status.get("currentPodHash", ""))

    @property
    def fully_promoted(self) -> bool:
        """`IsFullyPromoted`: also true before anything was deployed."""
        return self.stable_hash == self.current_hash

    @property
    def weights(self) -> Json | None:
        weights: Json | None = self.status.get("canary", {}).get("weights")
        return weights

    @property
    def aborted(self) -> bool:
        return bool(self.status.get("abort"))

    @property
    def promoting_fully(self) -> bool:
        return bool(self.status.get("promoteFull"))

    @property
    def pod_hash(self) -> str:
        """Of the template as it is desired now."""
        return safe_hash(self.template)

    @property
    def step_hash(self) -> str:
        return safe_hash(self.steps)

    @property
    def scale_down_delay(self) -> timedelta:
        """30 s by default."""
        return timedelta(seconds=self.strategy.get("scaleDownDelaySeconds", 30))

    @property
    def abort_scale_down_delay(self) -> timedelta | None:
        """30 s by default; None, which is 0 in the spec: an aborted canary stays up for ever."""
        seconds = self.strategy.get("abortScaleDownDelaySeconds", 30)
        return timedelta(seconds=seconds) if seconds else None


class ReplicaSet:
    """A ReplicaSet; `body` is what the API has."""

    def __init__(self, body: Json) -> None:
        self.body = body

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def hash(self) -> str:
        return str(self.body["metadata"].get("labels", {}).get(HASH_LABEL, ""))

    @property
    def annotations(self) -> dict[str, str]:
        return self.body["metadata"].get("annotations") or {}

    @property
    def revision(self) -> int:
        return int(self.annotations.get(REVISION, 0))

    @property
    def created(self) -> datetime:
        return moment_of(self.body["metadata"]["creationTimestamp"])

    @property
    def replicas(self) -> int:
        """Desired."""
        return int(self.body["spec"].get("replicas", 1))

    @property
    def actual(self) -> int:
        """Pods that exist."""
        return int(self.body.get("status", {}).get("replicas", 0))

    @property
    def ready(self) -> int:
        return int(self.body.get("status", {}).get("readyReplicas", 0))

    @property
    def available(self) -> int:
        return int(self.body.get("status", {}).get("availableReplicas", 0))

    @property
    def scale_down_at(self) -> datetime | None:
        text = self.annotations.get(SCALE_DOWN_AT)
        return moment_of(text) if text else None

    @property
    def injected(self) -> Json | None:
        """The labels and annotations that the controller put into its template (`ParseExistingPodMetadata`)."""
        text = self.annotations.get(EPHEMERAL_METADATA)
        return json.loads(text) if text else None
