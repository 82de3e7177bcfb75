"""How engines in pods hear what they are to keep of users' requests: a ConfigMap that need not be there, mounted.

A kubelet brings what changes in it into pods that run, so that nothing starts again for it.
"""

from __future__ import annotations

from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.conventions import samples_request
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY

_VOLUME, _FOLDER, _FILE = "samples", "/etc/tidegate/samples", "request.json"


MOUNT: Json = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
"""Of the engine's container. The folder and not the file: a mounted file would never change."""


def volume(delivery: str) -> Json:
    """Of the pod."""
    return {"name": _VOLUME, "configMap": {"name": samples_request(delivery), "optional": True}}


def options(version: str) -> list[str]:
    """What the entrypoint of that version's engine is told."""
    return ["--samples", f"{_FOLDER}/{_FILE}", "--known-as", version]


def can_keep(pod: Json, delivery: str) -> bool:
    """Whether a pod was made so that it hears of it."""
    volumes = (pod.get("spec") or {}).get("volumes") or []
    return any((each.get("configMap") or {}).get("name") == samples_request(delivery) for each in volumes)


def request_object(delivery: str, text: str) -> Json:
    """The ConfigMap with what engines read."""
    metadata = {"name": samples_request(delivery), "labels": {**MANAGED_BY, DELIVERY: delivery}}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": metadata,
        "data": {_FILE: text},
    }
