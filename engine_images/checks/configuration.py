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
from engine_images.shape import JsonObject, ModelShape, longest_input, text_config


def configuration_obstacles(files: VersionFiles, shape: ModelShape, wanted: Serving) -> Iterator[Obstacle]:
    """Everything in `config.json` that vLLM would refuse, alone or with these arguments."""
    if CONFIG_FILE not in files.documents:
        return
    yield from _architecture(files)
    yield from _sizes(files, shape)
    yield from _length(files, wanted)
    yield from _quantization(files, wanted)
    yield from _parallelism(shape, wanted)


def _architecture(files: VersionFiles) -> Iterator[Obstacle]:
    said = files.document(CONFIG_FILE).get("architectures")
    if not isinstance(said, list) or not said:
        yield Obstacle(where=f"{CONFIG_FILE} architectures", found=repr(said), expected="the name of the model's class")


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
    if shape.heads and shape.kv_heads and shape.heads % shape.kv_heads:
        found = f"{shape.kv_heads} for {shape.heads} attention heads"
        yield Obstacle(where=f"{CONFIG_FILE} num_key_value_heads", found=found, expected="a divisor of the heads")
    layers = {tensor.layer for tensor in files.weights_below("")} - {None}
    if layers and len(layers) < shape.layers:
        found = f"{shape.layers}, but the weights have {len(layers)}"
        yield Obstacle(where=f"{CONFIG_FILE} num_hidden_layers", found=found, expected="as many as the weights have")
    if files.largest_token is not None and shape.vocabulary and files.largest_token >= shape.vocabulary:
        found = f"a token with the number {files.largest_token}, but the model knows {shape.vocabulary} tokens"
        yield Obstacle(where=TOKENIZER_FILE, found=found, expected="the tokenizer that the model was trained with")


def _length(files: VersionFiles, wanted: Serving) -> Iterator[Obstacle]:
    longest = longest_input(files.document(CONFIG_FILE), files.document(TOKENIZER_CONFIG_FILE))
    if longest and wanted.max_model_len and wanted.max_model_len > longest[0]:
        yield Obstacle(
            where=f"{ARGS}.max-model-len",
            found=str(wanted.max_model_len),
            expected=f"at most {longest[0]}, the positions that the model knows ({longest[1]})",
        )


def quantization_of(config: JsonObject) -> str | None:
    """The method by which the version's weights are quantized, as vLLM names it."""
    for part in (config, text_config(config)):
        said = part.get("quantization_config") or part.get("compression_config")
        if isinstance(said, dict):
            return str(said.get("quant_method", "")).lower().replace("compressed_tensors", "compressed-tensors")
    return None


def _quantization(files: VersionFiles, wanted: Serving) -> Iterator[Obstacle]:
    method, asked = quantization_of(files.document(CONFIG_FILE)), wanted.quantization
    if asked in ONLINE and method not in (None, asked):
        found = f"{asked} for weights that are stored as {method}"
        yield Obstacle(where=f"{ARGS}.quantization", found=found, expected="nothing: the version says it itself")
    elif asked is not None and asked not in ONLINE and method is None:
        found = f"{asked} for weights that are not quantized so"
        yield Obstacle(where=f"{ARGS}.quantization", found=found, expected="one of " + ", ".join(ONLINE))


def _parallelism(shape: ModelShape, wanted: Serving) -> Iterator[Obstacle]:
    """What ModelConfig.verify_with_parallel_config and vLLM's parallel layers divide."""
    tensor, where = wanted.parallel.tensor, f"{ARGS}.tensor-parallel-size"
    divided = {"attention heads": shape.heads, "intermediate size": 0 if shape.experts else shape.intermediate}
    for what, size in divided.items():
        if size and size % tensor:
            yield Obstacle(where=where, found=f"{tensor} for {size} ({what})", expected=_divisors(size))
    if shape.kv_heads and not shape.latent and shape.kv_heads % tensor and tensor % shape.kv_heads:
        found = f"{tensor} for {shape.kv_heads} key and value heads"
        yield Obstacle(where=where, found=found, expected="a divisor or a multiple of them")
    if shape.layers and wanted.parallel.pipeline > shape.layers:
        found = f"{wanted.parallel.pipeline} stages for {shape.layers} layers"
        yield Obstacle(where=f"{ARGS}.pipeline-parallel-size", found=found, expected=f"at most {shape.layers}")
    if wanted.parallel.expert and not shape.experts:
        yield Obstacle(where=f"{ARGS}.enable-expert-parallel", found="a model without experts", expected="false")


def _divisors(size: int) -> str:
    return "one of " + ", ".join(str(number) for number in (1, 2, 3, 4, 6, 8, 16, 32) if size % number == 0)


_DRAFTLESS = frozenset({"ngram", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class"})


def companion_obstacles(files: VersionFiles, wanted: Serving) -> Iterator[Obstacle]:
    """Every adapter and draft model that is not whole inside the version.

    An engine finds the version in the folder `model` of its own, so their paths begin with it.
    """
    for adapter in wanted.lora:
        yield from _adapter(files, wanted, adapter.name, adapter.path)
    draft = draft_folder(wanted)
    if draft is None:
        return
    where = f"{ARGS}.speculative-config"
    if not draft.startswith(f"{MODEL_FOLDER}/"):
        yield _elsewhere(where, draft)
    elif f"{inside_version(draft)}/{CONFIG_FILE}" not in files.documents or not files.weights_below(
        inside_version(draft)
    ):
        yield Obstacle(
            where=where, found=f"no model at {draft}", expected=f"{CONFIG_FILE} and safetensors weights there"
        )


def draft_folder(wanted: Serving) -> str | None:
    """Where the draft model is, as the spec says; None when there is none."""
    speculation = wanted.speculation
    if speculation is None or speculation.draft is None or speculation.method in _DRAFTLESS:
        return None
    return speculation.draft


def _adapter(files: VersionFiles, wanted: Serving, name: str, path: str) -> Iterator[Obstacle]:
    where = f"{ARGS}.lora-modules {name}"
    if not path.startswith(f"{MODEL_FOLDER}/"):
        yield _elsewhere(where, path)
        return
    folder = inside_version(path)
    config = files.documents.get(f"{folder}/{ADAPTER_FILE}")
    if config is None or not files.weights_below(folder):
        expected = f"{ADAPTER_FILE} and adapter_model.safetensors there"
        yield Obstacle(where=where, found=f"no adapter at {path}", expected=expected)
        return
    rank = config.get("r")
    if isinstance(rank, int) and rank > wanted.max_lora_rank:
        found = f"an adapter of rank {rank}, above max-lora-rank ({wanted.max_lora_rank})"
        yield Obstacle(where=where, found=found, expected=f"max-lora-rank: {rank} or more")


def _elsewhere(where: str, path: str) -> Obstacle:
    expected = f"a folder of the model version, such as {MODEL_FOLDER}/adapters/mine: only what it holds was gated"
    return Obstacle(where=where, found=path, expected=expected)


def inside_version(path: str) -> str:
    """The folder within the version that a path of the arguments means."""
    return path.removeprefix(f"{MODEL_FOLDER}/").rstrip("/")
