"""A registered version becomes an engine for clusters: its files proven, its image named by digest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.delivery.registry import FakeRegistry

from pipelines.adapters.engines import ImageEngines
from pipelines.errors import NoImage
from pipelines.state import StateFolder
from registry.conventions import ENGINE_IMAGE
from registry.errors import DigestMismatch
from registry.model import ModelVersion
from tidegate.testing import write_tiny_model

IMAGE = "registry.example/team/support-llm@sha256:" + "7" * 64


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def version(registry: FakeRegistry, tmp_path: Path) -> ModelVersion:
    return registry.register("support-llm", write_tiny_model(tmp_path / "model"))


@pytest.fixture
def engines(registry: FakeRegistry, tmp_path: Path) -> ImageEngines:
    return ImageEngines(registry=registry, state=StateFolder(tmp_path / "state"), name="support-llm")


async def test_an_engine_is_the_image_that_the_version_names(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    said: list[str] = []
    engine = await engines.prepare(version, said.append)
    assert (engine.image, engine.version, engine.digest) == (IMAGE, "1", version.digest)
    assert (engine.command, engine.model) == ((), "support-llm")
    assert said == [f"models:/support-llm/1 is served from {IMAGE}"]


async def test_the_registered_tokenizer_is_here_afterwards(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    await engines.prepare(version, print)
    assert (engines.folder(version) / "tokenizer.json").exists()


async def test_a_version_without_an_image_says_how_to_make_one(engines: ImageEngines, version: ModelVersion) -> None:
    with pytest.raises(NoImage) as caught:
        await engines.prepare(version, print)
    assert caught.value.message == "models:/support-llm/1 has no engine image: its tag tidegate.engine.image is missing"
    assert "tidegate engine build models:/support-llm/1" in str(caught.value.hint)
    assert "tidegate engine push images:support-llm:1 REGISTRY/REPOSITORY:TAG --mark" in str(caught.value.hint)


async def test_an_image_named_by_a_tag_is_not_served(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: "registry.example/team/support-llm:7"})
    with pytest.raises(NoImage, match="by a tag, which may move"):
        await engines.prepare(version, print)


async def test_files_that_were_changed_in_the_store_stop_it(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    registry.change(version, "config.json", b"{}")
    with pytest.raises(DigestMismatch):
        await engines.prepare(version, print)


async def test_a_tag_that_changes_after_the_plan_was_made_changes_nothing_and_is_told(
    engines: ImageEngines, registry: FakeRegistry, version: ModelVersion
) -> None:
    registry.mark(version, {ENGINE_IMAGE: IMAGE})
    planned = replace(engines, images={version.version: IMAGE})
    registry.mark(version, {ENGINE_IMAGE: "evil.example.net/miner@sha256:" + "6" * 64})
    said: list[str] = []

    assert (await planned.prepare(version, said.append)).image == IMAGE
    assert said == [
        f"{version.uri} is served from {IMAGE}, as planned; "
        f"its tag tidegate.engine.image says evil.example.net/miner@sha256:{'6' * 64} since"
    ]
