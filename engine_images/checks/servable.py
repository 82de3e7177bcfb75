"""Can this model version be served? Reads its files, starts nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from engine_images.accelerators import Accelerator
from engine_images.arguments.serving import Serving
from engine_images.checks.files import (
    ADAPTER_FILE,
    ARGS,
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Obstacle,
    VersionFiles,
    file_obstacles,
)
from engine_images.checks.memory import room_obstacles
from engine_images.errors import CannotBeServed
from engine_images.manifest import MODEL_FOLDER
from engine_images.memory import HOST_BYTES, HOST_RANK_BYTES, Footprint, footprint
from engine_images.shape import ModelShape, longest_input, shape_of
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
        *_configuration(files, shape, wanted),
        *_companions(files, wanted),
    ]
    if files.weights_below("") and shape.layers:
        measure = _measure(files, settings, machine_bytes)
        found += room_obstacles(settings, wanted, heads=shape.heads, tokens=_tokens(files, wanted), measure=measure)
    return tuple(found)


def _configuration(files: VersionFiles, shape: ModelShape, wanted: Serving) -> Iterator[Obstacle]:
    """Where `config.json` is at odds with the tokenizer and the longest answer; all else vLLM says when it starts."""
    if CONFIG_FILE not in files.documents:
        return
    if files.largest_token is not None and shape.vocabulary and files.largest_token >= shape.vocabulary:
        found = f"a token with the number {files.largest_token}, but the model knows {shape.vocabulary} tokens"
        yield Obstacle(where=TOKENIZER_FILE, found=found, expected="the tokenizer that the model was trained with")
    longest = longest_input(files.document(CONFIG_FILE), files.document(TOKENIZER_CONFIG_FILE))
    if longest and wanted.max_model_len and wanted.max_model_len > longest[0]:
        yield Obstacle(
            where=f"{ARGS}.max-model-len",
            found=str(wanted.max_model_len),
            expected=f"at most {longest[0]}, the positions that the model knows ({longest[1]})",
        )


def _companions(files: VersionFiles, wanted: Serving) -> Iterator[Obstacle]:
    """Every adapter and draft model that is not whole inside the version.

    An engine finds the version in the folder `model` of its own, so their paths begin with it.
    """
    for name, path in wanted.lora:
        yield from _inside(files, f"{ARGS}.lora-modules {name}", path, ADAPTER_FILE)
    if wanted.draft is not None:
        yield from _inside(files, f"{ARGS}.speculative-config", wanted.draft, CONFIG_FILE)


def _inside(files: VersionFiles, where: str, path: str, described_by: str) -> Iterator[Obstacle]:
    folder = _inside_version(path)
    if not path.startswith(f"{MODEL_FOLDER}/"):
        expected = f"a folder of the model version, such as {MODEL_FOLDER}/adapters/mine: only what it holds was gated"
        yield Obstacle(where=where, found=path, expected=expected)
    elif f"{folder}/{described_by}" not in files.documents or not files.weights_below(folder):
        yield Obstacle(where=where, found=f"nothing whole at {path}", expected=f"{described_by} and safetensors there")


def _inside_version(path: str) -> str:
    """The folder within the version that a path of the arguments means."""
    return path.removeprefix(f"{MODEL_FOLDER}/").rstrip("/")


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
        tensors += files.weights_below(_inside_version(draft))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if machine_bytes is None else machine_bytes

    def measure(wanted: Serving, tokens: int) -> Footprint:
        return footprint(tensors, shape, wanted, settings.accelerator, tokens=tokens, machine_bytes=machine)

    return measure


def _tokens(files: VersionFiles, wanted: Serving) -> int:
    """Of the longest answer."""
    longest = longest_input(files.document(CONFIG_FILE), files.document(TOKENIZER_CONFIG_FILE))
    return wanted.max_model_len or (1 if wanted.length_fits else longest[0] if longest else ASSUMED_LENGTH)
