"""What a version's configuration says against serving it so; and the draft model and adapters that go with it."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.arguments.serving import ONLINE, Serving
from engine_images.checks.files import (
    ADAPTER_FILE,
    ARGS,
    CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Obstacle,
    VersionFiles,
)
from engine_images.manifest import MODEL_FOLDER
from engine_images.shape import ModelShape, longest_input, text_config


def configuration_obstacles(files: VersionFiles, shape: ModelShape, wanted: Serving) -> Iterator[Obstacle]:
    """What in `config.json` is at odds with the weights, the tokenizer, or what tidegate counts with."""
    if CONFIG_FILE not in files.documents:
        return
    yield from _sizes(files, shape)
    longest = longest_input(files.document(CONFIG_FILE), files.document(TOKENIZER_CONFIG_FILE))
    if longest and wanted.max_model_len and wanted.max_model_len > longest[0]:
        yield Obstacle(
            where=f"{ARGS}.max-model-len",
            found=str(wanted.max_model_len),
            expected=f"at most {longest[0]}, the positions that the model knows ({longest[1]})",
        )
    yield from _quantization(files, wanted)
    yield from _parallelism(shape, wanted)


def _sizes(files: VersionFiles, shape: ModelShape) -> Iterator[Obstacle]:
    said = {
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads or shape.state_layers,
        "hidden_size": shape.hidden,
        "vocab_size": shape.vocabulary,
    }
    for key, value in said.items():
        if value < 1:
            yield Obstacle(where=f"{CONFIG_FILE} {key}", found="nothing", expected="a whole number above 0")
    if files.largest_token is not None and shape.vocabulary and files.largest_token >= shape.vocabulary:
        found = f"a token with the number {files.largest_token}, but the model knows {shape.vocabulary} tokens"
        yield Obstacle(where=TOKENIZER_FILE, found=found, expected="the tokenizer that the model was trained with")


def _quantization(files: VersionFiles, wanted: Serving) -> Iterator[Obstacle]:
    """The method by which the version's weights are quantized, as vLLM names it, against the one that is asked for."""
    config, asked, method = files.document(CONFIG_FILE), wanted.quantization, None
    for part in (text_config(config), config):
        said = part.get("quantization_config") or part.get("compression_config")
        if isinstance(said, dict):
            method = str(said.get("quant_method", "")).lower().replace("compressed_tensors", "compressed-tensors")
    if asked in ONLINE and method not in (None, asked):
        found = f"{asked} for weights that are stored as {method}"
        yield Obstacle(where=f"{ARGS}.quantization", found=found, expected="nothing: the version says it itself")
    elif asked is not None and asked not in ONLINE and method is None:
        found = f"{asked} for weights that are not quantized so"
        yield Obstacle(where=f"{ARGS}.quantization", found=found, expected="one of " + ", ".join(ONLINE))


def _parallelism(shape: ModelShape, wanted: Serving) -> Iterator[Obstacle]:
    """What ModelConfig.verify_with_parallel_config divides."""
    tensor, stages = wanted.tensor, wanted.pipeline
    if shape.heads and shape.heads % tensor:
        parts = ", ".join(str(number) for number in (1, 2, 3, 4, 6, 8, 16, 32) if shape.heads % number == 0)
        found = f"{tensor} for {shape.heads} (attention heads)"
        yield Obstacle(where=f"{ARGS}.tensor-parallel-size", found=found, expected=f"one of {parts}")
    if shape.layers and stages > shape.layers:
        found = f"{stages} stages for {shape.layers} layers"
        yield Obstacle(where=f"{ARGS}.pipeline-parallel-size", found=found, expected=f"at most {shape.layers}")


def companion_obstacles(files: VersionFiles, wanted: Serving) -> Iterator[Obstacle]:
    """Every adapter and draft model that is not whole inside the version.

    An engine finds the version in the folder `model` of its own, so their paths begin with it.
    """
    for name, path in wanted.lora:
        yield from _inside(files, f"{ARGS}.lora-modules {name}", path, ADAPTER_FILE)
    if wanted.draft is not None:
        yield from _inside(files, f"{ARGS}.speculative-config", wanted.draft, CONFIG_FILE)


def _inside(files: VersionFiles, where: str, path: str, described_by: str) -> Iterator[Obstacle]:
    folder = inside_version(path)
    if not path.startswith(f"{MODEL_FOLDER}/"):
        expected = f"a folder of the model version, such as {MODEL_FOLDER}/adapters/mine: only what it holds was gated"
        yield Obstacle(where=where, found=path, expected=expected)
    elif f"{folder}/{described_by}" not in files.documents or not files.weights_below(folder):
        yield Obstacle(where=where, found=f"nothing whole at {path}", expected=f"{described_by} and safetensors there")


def inside_version(path: str) -> str:
    """The folder within the version that a path of the arguments means."""
    return path.removeprefix(f"{MODEL_FOLDER}/").rstrip("/")
