"""Adapters and draft models: they must come with the version, or what is served is not what was gated."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.arguments.serving import Serving
from engine_images.checks.configuration import ARGS
from engine_images.checks.model import Obstacle
from engine_images.checks.version import ADAPTER_FILE, CONFIG_FILE, VersionFiles
from engine_images.manifest import MODEL_FOLDER

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
