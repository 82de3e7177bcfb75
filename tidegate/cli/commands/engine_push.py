"""`tidegate engine push`: from a layout to a registry."""

from __future__ import annotations

import time
from pathlib import Path

from engine_images.adapters.oci_attach import attach_sbom, sign_image
from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_push import push_image
from engine_images.adapters.oci_read import InLayout, read_engine_files
from engine_images.errors import BrokenImage
from engine_images.manifest import ROOT, SBOM_FILE
from engine_images.oci.reference import Reference
from engine_images.oci.transfer import Transfer
from engine_images.signature import SigningKey
from tidegate.cli.engine_images import Login
from tidegate.cli.engine_view import in_bytes, read_key
from tidegate.cli.output import note, print_json


def run(source: str, reference: str, login: Login, sign_key: Path | None, *, as_json: bool) -> int:
    """Push, attach the SBOM, sign."""
    found, target = split_layout(source), Reference.parse(reference)
    if found is None:
        raise BrokenImage(f"{source} is no OCI layout")
    # Before anything is sent: a key that cannot be read would leave an image without its signature.
    key = SigningKey(read_key(sign_key)) if sign_key else None
    layout, name = OciLayout(found[0]), found[1]
    image = layout.manifest(name)
    sbom = read_engine_files(InLayout(layout, name)).get(f"{ROOT}/{SBOM_FILE}")
    pushed = push_image(layout, image, target, login.access, _tell, _wait)
    attached = attach_sbom(image, target, sbom, login.access, _wait).digest if sbom else None
    signature = sign_image(image, target, key, login.access, _wait) if key else None
    if as_json:
        print_json(pushed.model_dump(mode="json") | {"sbom": attached, "signature": signature})
    else:
        print(pushed.reference)
    return 0


def _tell(transfer: Transfer) -> None:
    if transfer.done < transfer.size:
        note(f"{transfer.title}: {in_bytes(transfer.done)} of {in_bytes(transfer.size)}")
    else:
        note(f"{transfer.title}: {transfer.how}, {in_bytes(transfer.size)}")


def _wait(seconds: float) -> None:
    note(f"the registry is away; next attempt in {seconds:g} s")
    time.sleep(seconds)
