"""What every engine's pod has, no matter who built its image: disks, a home that can be written to, probes."""

from __future__ import annotations

from rollouts.manifests.conventions import PORT_NAME
from tidegate.core.model import Json

SHARED_MEMORY, SCRATCH_FOLDER, CACHE_FOLDER, KEYS = "shared-memory", "scratch", "model-cache", "keys"
"""Names of the volumes."""

MOUNTS = {SHARED_MEMORY: "/dev/shm", SCRATCH_FOLDER: "/tmp", CACHE_FOLDER: "/var/cache/tidegate"}

CLAIM, CLAIM_FOLDER = "models", "/models"
"""The volume of a claim that holds weights already, and where it is mounted."""

HOME: Json = {"name": "HOME", "value": MOUNTS[SCRATCH_FOLDER]}
"""Libraries write below the home folder, and nothing else of the image can be written to."""


def probe(path: str, period: int, *, failures: int, timeout: int = 1) -> Json:
    """An HTTP probe of the engine's port; `period` and `timeout` in seconds."""
    return {
        "httpGet": {"path": path, "port": PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
