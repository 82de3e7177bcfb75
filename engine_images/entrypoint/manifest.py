"""`/engine/manifest.json` as the entrypoint needs it; who writes it is `engine_images.manifest`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .exits import BadSettings, NotAsBuilt

FILE = "manifest.json"
SIGNATURE_FILE = "manifest.json.sig"
MODEL_FOLDER = "model"
CACHE_FOLDER = "cache"
FORMAT = 1


@dataclass(frozen=True)
class Engine:
    """What is served, and how it is started."""

    digest: str
    """Of the inputs of its build."""
    model: str
    version: str
    model_digest: str
    files: Mapping[str, str]
    """SHA-256 by path below the model's folder."""
    source: str
    """Where the files come from when the image has none."""
    arguments: tuple[str, ...]
    """Of vLLM's server; `{port}` stands for the port."""
    environment: Mapping[str, str]
    drain_seconds: float
    warm_up: tuple[int, ...]
    factors: Mapping[str, str]
    """Of the compile key; empty for an engine that runs eagerly."""
    cache: Mapping[str, str]
    """SHA-256 by path below the compile cache's folder."""


def read(root: Path) -> bytes:
    """The manifest's bytes, as they are signed.

    Raises:
        NotAsBuilt: there is none.
    """
    try:
        return (root / FILE).read_bytes()
    except OSError as error:
        raise NotAsBuilt(f"{root / FILE} cannot be read: {error.strerror}") from error


def parse(content: bytes) -> Engine:
    """The manifest of these bytes.

    Raises:
        BadSettings: they are no manifest that this entrypoint knows.
    """
    try:
        document = json.loads(content)
        if document["format"] != FORMAT:
            raise BadSettings(f"the manifest has format {document['format']}; this entrypoint reads {FORMAT}")
        return _engine(document)
    except (ValueError, KeyError, TypeError) as error:
        raise BadSettings(f"the manifest cannot be read: {type(error).__name__}: {error}") from error


def _engine(document: dict[str, Any]) -> Engine:
    model, launch, key = document["model"], document["launch"], document.get("key")
    return Engine(
        digest=document["engine"],
        model=model["name"],
        version=model["version"],
        model_digest=model["digest"],
        files=_digests(model["files"]),
        source=model.get("source", ""),
        arguments=tuple(launch["arguments"]),
        environment=dict(launch["environment"]),
        drain_seconds=float(launch["drain_seconds"]),
        warm_up=tuple(int(size) for size in launch.get("warm_up", (1,))),
        factors=dict(key["factors"]) if key else {},
        cache=_digests(document.get("cache") or {}),
    )


def _digests(written: Mapping[str, str]) -> dict[str, str]:
    for path in written:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} would leave its folder")
    return {path: digest.removeprefix("sha256:") for path, digest in written.items()}
