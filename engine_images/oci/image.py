"""An image: the layers of a base, ours on top, and how to run it. Pure; the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine_images.oci.model import CONFIG, MANIFEST, TITLE, Descriptor, Document, Layer, Platform, Runtime

CREATED = "1970-01-01T00:00:00Z"
"""An image that knew when it was made would be another one each time."""

AUTHOR = "tidegate"

CARRIED = ("User", "ExposedPorts", "Volumes", "StopSignal", "Labels")
"""What a base image says of containers and ours does not contradict."""


def config_of(base: Document, layers: Sequence[Layer], runtime: Runtime, platform: Platform) -> dict[str, Any]:
    """The image's configuration: the base's, continued. `base` is empty for an image from nothing."""
    before = base.get("config") or {}
    return {
        "architecture": platform.architecture,
        "os": platform.os,
        "created": CREATED,
        "config": {key: before[key] for key in CARRIED if before.get(key)} | _container(before, runtime),
        "rootfs": {
            "type": "layers",
            "diff_ids": [*base.get("rootfs", {}).get("diff_ids", ()), *(layer.diff_id for layer in layers)],
        },
        "history": [*base.get("history", ()), *(_history(layer) for layer in layers)],
    }


def manifest_of(
    config: Descriptor,
    base_layers: Sequence[Descriptor],
    layers: Sequence[Layer],
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    """The manifest; its digest is the image's name."""
    ours = [layer.descriptor.model_copy(update={"annotations": {TITLE: layer.title}}) for layer in layers]
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.model_copy(update={"media_type": CONFIG}).to_dict(),
        "layers": [descriptor.to_dict() for descriptor in (*base_layers, *ours)],
        "annotations": dict(annotations),
    }


def _container(before: Document, runtime: Runtime) -> dict[str, Any]:
    container = {
        "Entrypoint": list(runtime.entrypoint),
        "Env": _environment(before.get("Env") or (), runtime.environment),
        "WorkingDir": runtime.workdir,
        "Labels": {**(before.get("Labels") or {}), **runtime.labels},
        "User": runtime.user or before.get("User"),
    }
    return {key: value for key, value in container.items() if value}


def _environment(before: Sequence[str], ours: Mapping[str, str]) -> list[str]:
    """`NAME=value`, the base's first; ours win."""
    merged = dict(entry.split("=", 1) for entry in before if "=" in entry) | dict(sorted(ours.items()))
    return [f"{name}={value}" for name, value in merged.items()]


def _history(layer: Layer) -> dict[str, Any]:
    return {"created": CREATED, "created_by": f"{AUTHOR}: {layer.title}", "author": AUTHOR}
