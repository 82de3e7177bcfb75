"""An engine's files go to the layer where they change least often, and the image says what it is."""

from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, contents

from engine_images.errors import BrokenImage
from engine_images.oci.compose import annotations_of, labels_of, planned_layers
from engine_images.oci.model import DOCKER_MANIFEST, MANIFEST, Base, Platform, base_of, manifest_for


def test_what_changes_together_lies_together() -> None:
    engine, cache, weights = planned_layers(contents(sbom=b"{}"), b"signature")

    assert (engine.title, sorted(engine.files)) == (
        "engine",
        [
            "/engine/entrypoint/__main__.py",
            "/engine/manifest.json",
            "/engine/manifest.json.sig",
            "/engine/sbom.cdx.json",
        ],
    )
    assert (cache.title, sorted(cache.files)) == (
        "compile cache",
        ["/engine/cache/aot/kernel.so", "/engine/cache/aot/rank_0_0/model"],
    )
    assert (weights.title, sorted(weights.files)) == (
        "weights",
        ["/engine/model/model.safetensors", "/engine/model/tokenizer.json"],
    )


def test_weights_that_are_pulled_at_start_and_a_cache_that_an_eager_engine_has_not_are_no_layers() -> None:
    assert [layer.title for layer in planned_layers(contents(with_weights=False), None)] == ["engine", "compile cache"]
    assert [layer.title for layer in planned_layers(contents(cache={}, with_weights=False), None)] == ["engine"]


def test_a_manifest_that_names_other_files_than_are_there_is_refused() -> None:
    whole = contents()
    short = type(whole)(manifest=whole.manifest, entrypoint=whole.entrypoint, cache={}, model=whole.model)

    with pytest.raises(BrokenImage, match=r"compile cache differ in 2 file.*aot/kernel.so is in the manifest only"):
        planned_layers(short, None)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a//b", "a/./b"])
def test_no_file_leaves_its_folder(path: str) -> None:
    with pytest.raises(BrokenImage, match="no path below"):
        planned_layers(contents(cache={path: b"x"}), None)


def test_an_image_says_what_it_is_and_never_when() -> None:
    base = Base(platform=AMD64, reference="registry.example/vllm@sha256:" + "1" * 64, digest="sha256:" + "1" * 64)

    said = annotations_of(contents().manifest, base)

    assert said == {
        "org.opencontainers.image.title": "support-llm",
        "org.opencontainers.image.version": "7",
        "org.opencontainers.image.base.name": base.reference,
        "org.opencontainers.image.base.digest": base.digest,
        **labels_of(contents().manifest),
    }
    assert said["dev.tidegate.model"] == "support-llm:7"


def test_a_base_from_a_layout_leaves_no_path_of_this_machine() -> None:
    base = Base(platform=AMD64, digest="sha256:" + "1" * 64, layout=Path("/somewhere"))

    assert "somewhere" not in str(annotations_of(contents().manifest, base))


def entry(architecture: str, number: int, kind: str = MANIFEST) -> dict[str, object]:
    platform = {"architecture": architecture, "os": "linux"}
    return {"mediaType": kind, "digest": "sha256:" + str(number) * 64, "size": 7, "platform": platform}


def test_the_image_of_the_platform_is_found_in_an_index() -> None:
    index = {"manifests": [entry("arm64", 1), entry("amd64", 2, DOCKER_MANIFEST)]}

    assert manifest_for(index, AMD64).digest == "sha256:" + "2" * 64


def test_a_platform_that_a_base_has_not_is_answered_with_those_it_has() -> None:
    index = {"manifests": [entry("arm64", 1), {"mediaType": MANIFEST, "digest": "sha256:" + "3" * 64, "size": 1}]}

    with pytest.raises(BrokenImage, match="no image for linux/s390x; it has: linux/arm64"):
        manifest_for(index, Platform(architecture="s390x"))


def test_docker_s_word_for_a_layer_becomes_the_specification_s() -> None:
    layer = {
        "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
        "digest": "sha256:" + "4" * 64,
        "size": 9,
        "annotations": {"a": "b"},
    }

    (kept,) = base_of({"layers": [layer]}, {"architecture": "amd64", "os": "linux"}).layers

    assert kept.media_type == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert kept.annotations == {}
