"""Images are documents: the same inputs give the same bytes, and a base image's own words are kept."""

from typing import Any

import pytest

from engine_images.errors import BrokenImage
from engine_images.oci.model import (
    LAYER,
    TITLE,
    Descriptor,
    Platform,
    Runtime,
    config_of,
)

AMD64 = Platform(architecture="amd64")
ENGINE, CACHE = (
    Descriptor.of(title.encode(), LAYER).model_copy(update={"annotations": {TITLE: title}})
    for title in ("engine", "compile cache")
)
RUNTIME = Runtime(entrypoint=("python", "-m", "entrypoint"), environment={"B": "2", "A": "1"}, workdir="/engine")
BASE = {
    "config": {"Env": ["PATH=/opt/venv/bin:/usr/bin", "A=old"], "User": "vllm", "Labels": {"base": "yes"}},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "0" * 64]},
    "history": [{"created_by": "base"}],
}


def test_layers_go_on_top_of_the_base_in_their_order() -> None:
    config = config_of(BASE, [ENGINE, CACHE], RUNTIME, AMD64)

    assert config["rootfs"]["diff_ids"] == ["sha256:" + "0" * 64, ENGINE.digest, CACHE.digest]
    assert [entry.get("created_by") for entry in config["history"]] == [
        "base",
        "tidegate: engine",
        "tidegate: compile cache",
    ]


def test_our_environment_wins_over_the_base_and_the_rest_of_it_stays() -> None:
    config = config_of(BASE, [ENGINE], RUNTIME, AMD64)["config"]

    assert config["Env"] == ["PATH=/opt/venv/bin:/usr/bin", "A=1", "B=2"]
    assert config["User"] == "vllm"
    assert config["Labels"] == {"base": "yes"}
    assert config["Entrypoint"] == ["python", "-m", "entrypoint"]


FOREIGN = {"mediaType": LAYER, "digest": "sha512:" + "0" * 128, "size": 1}
LESS_THAN_NOTHING = {**ENGINE.to_dict(), "size": -1}


@pytest.mark.parametrize("document", [{}, FOREIGN, LESS_THAN_NOTHING, "text"])
def test_what_is_no_descriptor_is_said_in_one_line(document: Any) -> None:
    with pytest.raises(BrokenImage, match="no descriptor of a blob"):
        Descriptor.read(document)
