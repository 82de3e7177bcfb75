"""`/engine/manifest.json` as the entrypoint needs it, and the proof that it is the one that was signed.

Who writes it is `engine_images.manifest`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .journal import BadSettings, NotAsBuilt

FILE = "manifest.json"
SIGNATURE_FILE = "manifest.json.sig"
MODEL_FOLDER = "model"
CACHE_FOLDER = "cache"
FORMAT = 1


@dataclass(frozen=True)
class ServedEngine:
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


def parse(content: bytes) -> ServedEngine:
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


def _engine(document: dict[str, Any]) -> ServedEngine:
    model, launch, key = document["model"], document["launch"], document.get("key")
    return ServedEngine(
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


CHUNK_BYTES = 1 << 20
THREADS = 8
"""Files that are read at once. Hashing runs outside of Python's lock; the disk is the bound."""


def prove_files(folder: Path, digests: Mapping[str, str]) -> None:
    """Return when `folder` holds exactly the files of `digests`, each as it was built.

    A file that nobody named is refused too: vLLM would read another chat template or adapter that it finds.

    Raises:
        NotAsBuilt: the first file that is missing, strange or changed, by name.
    """
    found = set(_files(folder))
    for path in sorted(digests.keys() - found):
        raise NotAsBuilt(f"{folder / path} is missing")
    for path in sorted(found - digests.keys()):
        raise NotAsBuilt(f"{folder / path} is not in the manifest")
    with ThreadPoolExecutor(THREADS) as pool:
        actual = dict(zip(digests, pool.map(digest_of, (folder / path for path in digests)), strict=True))
    for path, digest in digests.items():
        if actual[path] != digest:
            raise NotAsBuilt(f"{folder / path} was changed: its SHA-256 is {actual[path]}, the manifest says {digest}")


def digest_of(file: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    Raises:
        NotAsBuilt: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise NotAsBuilt(f"{file} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def prove_signature(public_key: Path, content: bytes, signature: Path) -> None:
    """Return when `signature` (base64) is for `content`, by one of the keys in that file: ECDSA on P-256 with SHA-256.

    A file may hold several keys in PEM, one after the other: a key is replaced while engines of both run.

    Raises:
        BadSettings: the key cannot be read.
        NotAsBuilt: there is no signature, or it is another key's, or of another content.
    """
    # Here: an engine without a key needs no cryptography.
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        keys = [load_pem_public_key(pem) for pem in _pems(public_key.read_bytes())]
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise BadSettings(f"{public_key} is no public key in PEM: {error}") from error
    try:
        signed = base64.b64decode(signature.read_bytes(), validate=True)
    except OSError as error:
        raise NotAsBuilt(f"{signature} cannot be read ({error.strerror}), and a public key is given") from error
    except binascii.Error as error:
        raise NotAsBuilt(f"{signature} is not of this manifest by the key in {public_key}") from error
    for key in keys:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise BadSettings(f"{public_key} is of another kind than ECDSA on P-256")
        with suppress(InvalidSignature):
            return key.verify(signed, content, ec.ECDSA(SHA256()))
    raise NotAsBuilt(f"{signature} is not of this manifest by the key in {public_key}")


def _pems(content: bytes) -> list[bytes]:
    """Each key of the file; all of it where there is none, so that the library says what is wrong."""
    end = b"-----END PUBLIC KEY-----"
    return [part + end for part in content.split(end)[:-1]] or [content]


def _files(folder: Path) -> Iterator[str]:
    """Every file below `folder`, links followed, as the manifest names them."""
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            yield (Path(parent) / name).relative_to(folder).as_posix()
