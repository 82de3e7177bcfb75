"""An engine's files go to the layer where they change least often, and the image says what it is."""

from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, contents

from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.adapters.oci_build import require_base_for
from engine_images.errors import BrokenImage
from engine_images.model import EngineEnvironment
from engine_images.oci.compose import annotations_of, labels_of, planned_layers
from engine_images.oci.model import DOCKER_MANIFEST, MANIFEST, Base, Platform, manifest_for


def test_what_changes_together_lies_together() -> None:
    layers = planned_layers(contents(sbom=b"{}"), b"signature")

    assert [(title, sorted(files)) for title, files in layers.items()] == [
        (
            "engine",
            [
                "/engine/entrypoint/__main__.py",
                "/engine/manifest.json",
                "/engine/manifest.json.sig",
                "/engine/sbom.cdx.json",
            ],
        ),
        ("compile cache", ["/engine/cache/aot/kernel.so", "/engine/cache/aot/rank_0_0/model"]),
        ("weights", ["/engine/model/model.safetensors", "/engine/model/tokenizer.json"]),
    ]


def test_weights_that_are_pulled_at_start_and_a_cache_that_an_eager_engine_has_not_are_no_layers() -> None:
    assert list(planned_layers(contents(with_weights=False), None)) == ["engine", "compile cache"]
    assert list(planned_layers(contents(cache={}, with_weights=False), None)) == ["engine"]


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


def test_a_base_that_names_another_python_is_refused_and_the_rest_is_told() -> None:
    environment = EngineEnvironment(python="/opt/tidegate/engine/bin/python", vllm="0.32.0", recipe="f00d")

    def base(python: str) -> Base:
        return Base(platform=AMD64, config={"config": {"Env": [f"{PYTHON_VARIABLE}={python}"]}})

    told: list[str] = []
    require_base_for(base(environment.python), environment, told.append)
    assert told == ["the base must have vLLM 0.32.0 at /opt/tidegate/engine/bin/python, and a C compiler"]
    with pytest.raises(BrokenImage, match=r"^the base has its Python at /venv/bin/python; the engine's is /opt/tide"):
        require_base_for(base("/venv/bin/python"), environment, told.append)
