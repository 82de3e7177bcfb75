"""That the files are those that were built, and the manifest the one that was signed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from .exits import BadSettings, NotAsBuilt

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
