"""What hangs on an image is found and believed by other people's tools."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.engines.engine_image import new_signing_key, small_engine
from fakes.services.oci_registry import RegistryServer

from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_push import push_image, sign_image
from engine_images.adapters.oci_registry import RegistryAccess, Repository
from engine_images.errors import BadSignature
from engine_images.oci.model import Descriptor
from engine_images.oci.reading import prove_image
from engine_images.oci.reference import ImageReference
from engine_images.signature import SigningKey

pytestmark = pytest.mark.usefixtures("tools")


@pytest.fixture
def where(registry: RegistryServer) -> ImageReference:
    return ImageReference.parse(f"{registry.host}/team/support-llm:7")


@pytest.fixture
def image(tmp_path: Path, where: ImageReference) -> Descriptor:
    layout = OciLayout(tmp_path / "layout")
    image = small_engine(layout.root)
    push_image(layout, image, where, openly)
    return image


def openly(_: ImageReference) -> RegistryAccess:
    return RegistryAccess()


def believed(registry: RegistryServer, image: Descriptor, key: SigningKey, folder: Path) -> bool:
    """Whether one of the image's signatures is the key's: what `cosign verify --key` does, with openssl."""
    folder.mkdir(exist_ok=True)
    (folder / "engine.pub").write_bytes(key.public_pem)
    found = manifest(registry, f"{image.digest.replace(':', '-')}.sig")
    for layer in found["layers"]:
        assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
        payload = blob(registry, layer["digest"])
        assert json.loads(payload)["critical"] == {
            "identity": {"docker-reference": f"{registry.host}/team/support-llm"},
            "image": {"docker-manifest-digest": image.digest},
            "type": "cosign container image signature",
        }
        (folder / "payload").write_bytes(payload)
        (folder / "der").write_bytes(base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"]))
        check = ["openssl", "dgst", "-sha256", "-verify", "engine.pub", "-signature", "der", "payload"]
        if subprocess.run(check, cwd=folder, capture_output=True, check=False).returncode == 0:
            return True
    return False


def test_an_image_is_believed_to_be_of_the_keys_that_signed_it_which_stand_there_once_each(
    where: ImageReference, image: Descriptor, registry: RegistryServer, tmp_path: Path
) -> None:
    one, two, other = (new_signing_key() for _ in range(3))
    for key in (one, two, one):
        tag = sign_image(image, where, key, openly)

    assert tag == f"{image.digest.replace(':', '-')}.sig"
    assert len(manifest(registry, tag)["layers"]) == 2
    found = [believed(registry, image, key, tmp_path / str(number)) for number, key in enumerate((one, two, other))]
    assert found == [True, True, False]


def test_an_image_in_a_registry_is_proven_whole(where: ImageReference, tmp_path: Path) -> None:
    key, layout = new_signing_key(), OciLayout(tmp_path / "real")
    image = small_engine(layout.root, key=key)
    push_image(layout, image, where, openly)
    by_digest = where.model_copy(update={"digest": image.digest, "tag": ""})
    with Repository(by_digest, RegistryAccess()) as repository:
        with pytest.raises(BadSignature, match="is not signed"):
            prove_image(repository, {"engine.pub": key.public_pem})

        sign_image(image, where, key, openly)

        proven, manifest_by, image_by = prove_image(repository, {"engine.pub": key.public_pem})
        other = {"other.pub": new_signing_key().public_pem}
        with pytest.raises(BadSignature, match="another key"):
            prove_image(repository, other)
    assert (proven.digest, manifest_by, image_by) == (image.digest, "engine.pub", "engine.pub")


def manifest(registry: RegistryServer, name: str) -> dict[str, Any]:
    kinds = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
    answer = httpx.get(f"http://{registry.host}/v2/team/support-llm/manifests/{name}", headers={"Accept": kinds})
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def blob(registry: RegistryServer, digest: str) -> bytes:
    return httpx.get(f"http://{registry.host}/v2/team/support-llm/blobs/{digest}").raise_for_status().content
