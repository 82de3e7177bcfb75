"""Can this model version be served? Reads its files, starts nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from engine_images.accelerators import DEVICES, Accelerator
from engine_images.arguments.serving import Serving
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
from engine_images.choices import CompileMode
from engine_images.errors import CannotBeServed
from engine_images.memory import KV_CACHE, UTILIZATION, Footprint, Model, footprint, on_shared_gpus
from engine_images.model import GpuShare
from engine_images.shape import longest_input, shape_of
from engine_images.spec import EngineSettings, sampling_defaults

ASSUMED_LENGTH = 2048
"""What vLLM takes for a model whose configuration names no length."""


def obstacles(files: VersionFiles, settings: EngineSettings, *, machine_bytes: int) -> Iterator[Obstacle]:
    """Everything that stands in the way of serving `files`; `machine_bytes` is the memory of a CPU's machine."""
    wanted = settings.vllm.serving
    model = _model(files, "")
    yield from file_obstacles(files)
    yield from configuration_obstacles(files, model.shape, wanted)
    yield from companion_obstacles(files, wanted)
    if model.tensors and model.shape.layers:
        whole, tokens = _with_draft(files, model, wanted), _tokens(files, wanted)
        yield from room_obstacles(whole, settings, wanted, tokens=tokens, machine_bytes=machine_bytes)


def footprint_of(files: VersionFiles, settings: EngineSettings, *, machine_bytes: int | None = None) -> Footprint:
    """What an engine of these files and settings needs on each accelerator, term by term.

    `machine_bytes` is as in `problems_of`.
    """
    wanted = settings.vllm.serving
    return footprint(
        _with_draft(files, _model(files, ""), wanted),
        wanted,
        settings.accelerator,
        tokens=_tokens(files, wanted),
        eager=settings.compile.mode is CompileMode.NONE,
        machine_bytes=_machine_bytes() if machine_bytes is None else machine_bytes,
    )


def sharing_gpus(settings: EngineSettings) -> EngineSettings:
    """The settings of an engine that shares its GPUs; as they are where it computes on a CPU."""
    if settings.accelerator is Accelerator.CPU:
        return settings
    vllm = settings.vllm
    return settings.model_copy(update={"vllm": vllm.model_copy(update={"args": on_shared_gpus(vllm.args)})})


def share_of(files: VersionFiles, settings: EngineSettings) -> GpuShare | None:
    """What an engine of these files takes of GPUs that it shares with others; None where it computes on a CPU.

    Even with a KV cache of fixed size vLLM does not start unless `gpu-memory-utilization` of the whole GPU is free
    (`request_memory` of `v1/worker/utils.py`), which the second engine on a GPU would not find.
    """
    device = DEVICES[settings.accelerator]
    if device.memory_bytes is None:
        return None
    said = settings.vllm.args
    needed = footprint_of(files, sharing_gpus(settings))
    told: dict[str, str] = {}
    # A share that the spec says is taken whole: vLLM makes what is left of it the KV cache.
    needed_bytes = needed.available if UTILIZATION in said else needed.needed
    if UTILIZATION not in said:
        told[UTILIZATION] = f"{min(ceil(needed_bytes / device.memory_bytes * 1000) / 1000, 1):g}"
        if KV_CACHE not in said:
            told[KV_CACHE] = str(needed.cache)
    return GpuShare(
        count=settings.accelerator_count,
        each_bytes=needed_bytes,
        names=device.names,
        arguments=tuple(f"--{name}={value}" for name, value in told.items()),
    )


def _with_draft(files: VersionFiles, model: Model, wanted: Serving) -> Model:
    draft = draft_folder(wanted)
    return model.model_copy(update={"draft": _model(files, inside_version(draft))}) if draft else model


def _tokens(files: VersionFiles, wanted: Serving) -> int:
    """Of the longest answer."""
    return wanted.max_model_len or (1 if wanted.length_fits else _own_length(files))


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
    machine = _machine_bytes() if machine_bytes is None else machine_bytes
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
