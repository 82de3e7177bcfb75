"""`tidegate engine verify`: whether a key signed the engine's manifest."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.oci_read import read_engine_files
from engine_images.errors import BadSignature
from engine_images.manifest import MANIFEST_FILE, ROOT, SIGNATURE_FILE
from engine_images.signature import verify
from tidegate.cli.engine_images import Login, opened
from tidegate.cli.engine_view import read_key
from tidegate.cli.output import print_json


def run(name: str, key: Path, login: Login, *, as_json: bool) -> int:
    """Say that it did; anything else is an error."""
    public = read_key(key)
    with opened(name, login) as images:
        files = read_engine_files(images)
    signature = files.get(f"{ROOT}/{SIGNATURE_FILE}")
    if signature is None:
        raise BadSignature(f"{name} is not signed: no {ROOT}/{SIGNATURE_FILE}")
    verify(public, files.get(f"{ROOT}/{MANIFEST_FILE}", b""), signature)
    if as_json:
        print_json({"image": name, "verified": True})
    else:
        print(f"{name}: the engine's manifest is signed by {key}")
    return 0
