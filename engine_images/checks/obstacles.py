"""Every obstacle to serving a model version, told from its files and the settings alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.checks.companions import companion_obstacles, draft_folder, inside_version
from engine_images.checks.configuration import configuration_obstacles
from engine_images.checks.files import file_obstacles
from engine_images.checks.model import Obstacle
from engine_images.checks.room import room_obstacles
from engine_images.checks.version import CONFIG_FILE, TOKENIZER_CONFIG_FILE, VersionFiles
from engine_images.footprint import Model
from engine_images.pinned.catalogue import pinned_vllm
from engine_images.shape import longest_input, shape_of
from engine_images.spec import EngineSettings

ASSUMED_LENGTH = 2048
"""What vLLM takes for a model whose configuration names no length."""


def obstacles(files: VersionFiles, settings: EngineSettings, *, machine_bytes: int) -> Iterator[Obstacle]:
    """Everything that stands in the way of serving `files`; `machine_bytes` is the memory of a CPU's machine."""
    wanted, vllm = settings.vllm.serving, pinned_vllm(settings.vllm.version)
    model = _model(files, "")
    yield from file_obstacles(files)
    if vllm is None:
        yield Obstacle(
            where="engine.vllm.version", found=settings.vllm.version, expected="a version that is known here"
        )
    else:
        yield from configuration_obstacles(files, model.shape, wanted, vllm)
    yield from companion_obstacles(files, wanted)
    draft = draft_folder(wanted)
    if draft:
        model = model.model_copy(update={"draft": _model(files, inside_version(draft))})
    if model.tensors and model.shape.layers:
        tokens = wanted.max_model_len or (1 if wanted.length_fits else _own_length(files))
        yield from room_obstacles(model, settings, wanted, tokens=tokens, machine_bytes=machine_bytes)


def _model(files: VersionFiles, folder: str) -> Model:
    config = files.document(f"{folder}/{CONFIG_FILE}" if folder else CONFIG_FILE)
    return Model(shape=shape_of(config), tensors=files.weights_below(folder))


def _own_length(files: VersionFiles) -> int:
    longest = longest_input(files.document(CONFIG_FILE), files.document(TOKENIZER_CONFIG_FILE))
    return longest[0] if longest else ASSUMED_LENGTH
