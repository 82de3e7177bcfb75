"""What a version's configuration says against serving it so; and the draft model and adapters that go with it."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.arguments.serving import Serving
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
from engine_images.shape import ModelShape, longest_input


def configuration_obstacles(files: VersionFiles, shape: ModelShape, wanted: Serving) -> Iterator[Obstacle]:
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
