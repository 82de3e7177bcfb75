"""Can this model version be served? Reads its files, starts nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from engine_images.accelerators import Accelerator
from engine_images.arguments.serving import Serving
from engine_images.checks.configuration import companion_obstacles, configuration_obstacles, inside_version
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
from engine_images.memory import HOST_BYTES, HOST_RANK_BYTES, Footprint, footprint
from engine_images.shape import longest_input, shape_of
from engine_images.spec import PARAMETERS, EngineSettings

ASSUMED_LENGTH = 2048
"""What vLLM takes for a model whose configuration names no length."""


def problems_of(
    files: VersionFiles, settings: EngineSettings, *, machine_bytes: int | None = None
) -> tuple[Obstacle, ...]:
    """Everything that stands in the way of serving `files`; empty when nothing.

    `machine_bytes` is the memory of the machine that serves, where the accelerator is a CPU; of this one by default.
    """
    wanted, shape = settings.vllm.serving, shape_of(files.document(CONFIG_FILE))
    found = [
        *file_obstacles(files),
        *configuration_obstacles(files, shape, wanted),
        *companion_obstacles(files, wanted),
    ]
    if files.weights_below("") and shape.layers:
        measure = _measure(files, settings, machine_bytes)
        found += room_obstacles(settings, wanted, heads=shape.heads, tokens=_tokens(files, wanted), measure=measure)
    return tuple(found)


def footprint_of(files: VersionFiles, settings: EngineSettings) -> Footprint:
    """What an engine of these files and settings needs on each accelerator, or of the memory of this machine."""
    wanted = settings.vllm.serving
    return _measure(files, settings, None)(wanted, _tokens(files, wanted))


def process_bytes(files: VersionFiles, settings: EngineSettings) -> int:
    """What a process needs of the machine's own memory, where a CPU has its weights and its KV cache too."""
    if settings.accelerator is not Accelerator.CPU:
        return HOST_BYTES + settings.accelerator_count * HOST_RANK_BYTES
    return footprint_of(files, settings).needed


def require_servable(found: Sequence[Obstacle], version: str) -> None:
    """Return when there are no obstacles.

    Raises:
        CannotBeServed: one line for each.
    """
    if found:
        raise CannotBeServed("\n".join(f"{version}: {obstacle}" for obstacle in found))


def sampling_of(files: VersionFiles, settings: EngineSettings) -> Mapping[str, float]:
    """What is used for requests that say nothing: the version's own defaults, changed by the spec's."""
    config = files.document(GENERATION_FILE)
    own = {ours: config[theirs] for theirs, ours in PARAMETERS.items() if isinstance(config.get(theirs), int | float)}
    return {name: float(value) for name, value in sorted({**own, **settings.sampling.said}.items())}


def _measure(
    files: VersionFiles, settings: EngineSettings, machine_bytes: int | None
) -> Callable[[Serving, int], Footprint]:
    shape, tensors = shape_of(files.document(CONFIG_FILE)), files.weights_below("")
    if draft := settings.vllm.serving.draft:
        # Its weights lie next to the model's; its KV cache is small change of the reserve.
        tensors += files.weights_below(inside_version(draft))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if machine_bytes is None else machine_bytes

    def measure(wanted: Serving, tokens: int) -> Footprint:
        return footprint(tensors, shape, wanted, settings.accelerator, tokens=tokens, machine_bytes=machine)

    return measure


def _tokens(files: VersionFiles, wanted: Serving) -> int:
    """Of the longest answer."""
    longest = longest_input(files.document(CONFIG_FILE), files.document(TOKENIZER_CONFIG_FILE))
    return wanted.max_model_len or (1 if wanted.length_fits else longest[0] if longest else ASSUMED_LENGTH)
