"""`tidegate engine verify`: whether a key signed an image, and what each signature covers."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.oci_verify import prove_image
from tidegate.cli.engine_images import Login, opened
from tidegate.cli.engine_view import aligned, read_key
from tidegate.cli.output import print_json

BY_MANIFEST = "the model's files, the compile cache, vLLM's arguments"
BY_IMAGE = "everything: base, entrypoint, first process, user, variables, every layer"
BY_LOOK = "entrypoint, first process and user are this tidegate's own; base, variables, other layers nobody's word"


def run(name: str, key: Path, login: Login, *, as_json: bool) -> int:
    """Say what was proven; anything else is an error."""
    public = read_key(key)
    with opened(name, login) as images:
        proof = prove_image(images, {str(key): public})
    if as_json:
        covered = {"manifest": proof.manifest_by, "image": proof.image_by}
        print_json({"image": name, "digest": proof.image.digest, "verified": True, "signed_by": covered})
        return 0
    whole = ("image", f"signed by {proof.image_by}", BY_IMAGE) if proof.image_by else ("image", "not signed", BY_LOOK)
    print(f"{name}: {proof.image.digest}")
    for line in aligned([("engine's manifest", f"signed by {proof.manifest_by}", BY_MANIFEST), whole]):
        print(line)
    return 0
