"""`tidegate engine push`: from a layout to a registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine_images.adapters.oci_attach import attach_sbom, sign_image
from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_push import push_image
from engine_images.adapters.oci_read import InLayout, read_engine_files
from engine_images.errors import BrokenImage
from engine_images.manifest import ROOT, SBOM_FILE, ModelContract
from engine_images.oci.inspect import manifest_in
from engine_images.oci.reference import Reference
from engine_images.oci.transfer import Transfer
from engine_images.signature import SigningKey
from registry.conventions import ENGINE_IMAGE
from registry.model import ModelVersion
from tidegate.cli.engine_images import Login, wait_for_registry
from tidegate.cli.engine_view import in_bytes, read_key
from tidegate.cli.output import note, print_json

if TYPE_CHECKING:
    from registry.adapters.mlflow_models import MlflowRegistry


def run(
    source: str, reference: str, login: Login, sign_key: Path | None, marks: MlflowRegistry | None, *, as_json: bool
) -> int:
    """Push, attach the SBOM, sign; then say it on the model version in `marks`, where there is one."""
    found, target = split_layout(source), Reference.parse(reference)
    if found is None:
        raise BrokenImage(f"{source} is no OCI layout")
    # Before anything is sent: a key that cannot be read would leave an image without its signature.
    key = SigningKey(read_key(sign_key)) if sign_key else None
    layout, name = OciLayout(found[0]), found[1]
    image, files = layout.manifest(name), read_engine_files(InLayout(layout, name))
    version = _version_of(source, manifest_in(files).model, marks) if marks else None
    pushed = push_image(layout, image, target, login.access, _tell, wait_for_registry)
    sbom = files.get(f"{ROOT}/{SBOM_FILE}")
    attached = attach_sbom(image, target, sbom, login.access, wait_for_registry).digest if sbom else None
    signature = sign_image(image, target, key, login.access, wait_for_registry) if key else None
    if marks and version:
        marks.mark(version, {ENGINE_IMAGE: pushed.reference})
        note(f"{version.uri} is served from it")
    if as_json:
        print_json(pushed.model_dump(mode="json") | {"sbom": attached, "signature": signature})
    else:
        print(pushed.reference)
    return 0


def _version_of(source: str, model: ModelContract, registry: MlflowRegistry) -> ModelVersion:
    """The registered version that the image serves.

    Raises:
        BrokenImage: it serves other files than the registered.
    """
    version = registry.resolve(model.name, model.version)
    if version.digest != model.digest:
        raise BrokenImage(
            f"{source} serves other files than those registered as {version.uri}", hint="build it from this registry"
        )
    return version


def _tell(transfer: Transfer) -> None:
    if transfer.done < transfer.size:
        note(f"{transfer.title}: {in_bytes(transfer.done)} of {in_bytes(transfer.size)}")
    else:
        note(f"{transfer.title}: {transfer.how}, {in_bytes(transfer.size)}")
