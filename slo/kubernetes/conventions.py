"""Labels of pods and objects: what the pod monitors read, and what whoever writes a Rollout must set."""

from __future__ import annotations

import re

DELIVERY = "tidegate.dev/delivery"
"""On every engine's pod and on every exported object: the delivery's name."""

REGION, VERSION = "tidegate.dev/region", "tidegate.dev/version"
"""On every engine's pod: its region, and the registry's number of the model version."""

ROLE = "tidegate.dev/role"
"""Set by Argo Rollouts from `canaryMetadata` and `stableMetadata`; a pod without it serves the previous version."""

POD_TEMPLATE_HASH = "rollouts-pod-template-hash"
"""Set by Argo Rollouts on every pod of its own accord."""

ENGINE_SERIES = "vllm:.+|http_requests_total|process_(resident_memory_bytes|cpu_seconds_total|start_time_seconds)"
"""What is kept of an engine's metrics; these carry `pod_template_hash`, and no other series does."""

GPU_SERIES = "DCGM_FI_(DEV|PROF)_.+"
"""What is kept of NVIDIA's DCGM exporter."""


def as_label(key: str) -> str:
    """How Prometheus and the DCGM exporter spell a pod label's key: with `_` for what a label name cannot have."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)
