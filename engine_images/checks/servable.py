"""Can this model version be served? Reads its files, starts nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from engine_images.arguments.pinned import pinned_vllm
from engine_images.checks.configuration import (
    companion_obstacles,
    configuration_obstacles,
    draft_folder,
    inside_version,
)
from engine_images.checks.files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_CONFIG_FILE,
    Obstacle,
    VersionFiles,
    file_obstacles,
)
from engine_images.checks.memory import room_obstacles
from engine_images.errors import CannotBeServed
from engine_images.memory import Model
from engine_images.shape import longest_input, shape_of
from engine_images.spec import EngineSettings, sampling_defaults

ASSUMED_LENGTH = 2048
"""What vLLM takes for a model whose configuration names no length."""


def obstacles(files: VersionFiles, settings: EngineSettings, *, machine_bytes: int) -> Iterator[Obstacle]:
    """Everything that stands in the way of serving `files`; `machine_bytes` is the memory of a CPU's machine."""
    wanted, vllm = settings.require_vllm().serving, pinned_vllm(settings.require_vllm().version)
    model = _model(files, "")
    yield from file_obstacles(files)
    if vllm is None:
        yield Obstacle(
            where="engine.vllm.version", found=settings.require_vllm().version, expected="a version that is known here"
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


def problems_of(
    files: VersionFiles, settings: EngineSettings, *, machine_bytes: int | None = None
) -> tuple[Obstacle, ...]:
    """Everything that stands in the way of serving `files`; empty when nothing.

    `machine_bytes` is the memory of the machine that serves, where the accelerator is a CPU; of this one by default.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if machine_bytes is None else machine_bytes
    return tuple(obstacles(files, settings, machine_bytes=machine))


def require_servable(found: Sequence[Obstacle], version: str) -> None:
    """Return when there are no obstacles.

    Raises:
        CannotBeServed: one line for each.
    """
    if found:
        raise CannotBeServed("\n".join(f"{version}: {obstacle}" for obstacle in found))


def sampling_of(files: VersionFiles, settings: EngineSettings) -> Mapping[str, float]:
    """What is used for requests that say nothing: the version's own defaults, changed by the spec's."""
    return sampling_defaults(files.document(GENERATION_FILE), settings.sampling)
