"""Which Hugging Face directories tidegate registers: data only, nothing that runs when it is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from registry.errors import UnfitModel
from tidegate.core.model import Value

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".msgpack", ".h5")
"""Weights in these formats are, or may contain, pickled objects, or need a loader that tidegate does not trust."""

TOKENIZER_FILES = re.compile(r"(tokenizer|special_tokens|added_tokens|vocab|merges|chat_template|config|spiece)[^/]*")
"""What `AutoTokenizer` reads, beside sentencepiece's `*.model`."""

_TAGGABLE = re.compile(r"[\w./\- :]{1,200}", re.ASCII)
"""MLflow takes these characters in the key of a tag; a file's digest is kept under its path."""


class ModelCard(Value):
    """What a directory says about its model."""

    architecture: str
    """The class in transformers, such as `LlamaForCausalLM`."""
    transformers_version: str | None
    dtype: str | None


def read_card(folder: Path, paths: Iterable[str]) -> ModelCard:
    """Read the model's own description and refuse what tidegate would not serve.

    Raises:
        UnfitModel: a file is missing, may hold pickled objects, or asks for custom code.
    """
    paths = sorted(paths)
    _refuse_dangerous(paths)
    _refuse_incomplete(folder, paths)
    for path in paths:
        # Any JSON at the top may carry it: config, tokenizer, processor, generation.
        if "/" not in path and path.endswith(".json") and "auto_map" in _read_json(folder / path):
            raise UnfitModel(f"{folder / path}: auto_map asks for custom code, which tidegate never runs")
    config = _read_json(folder / "config.json")
    architectures = config.get("architectures") or []
    # The flavor names one class; with several, which of them MLflow would load is a guess.
    if len(architectures) != 1:
        raise UnfitModel(f"{folder / 'config.json'}: found architectures {architectures}; expected exactly one")
    return ModelCard(
        architecture=architectures[0],
        transformers_version=config.get("transformers_version"),
        dtype=config.get("dtype") or config.get("torch_dtype"),
    )


def tokenizer_files(paths: Iterable[str]) -> list[str]:
    """Those of the files that make a tokenizer without the model."""
    return [path for path in paths if "/" not in path and (TOKENIZER_FILES.fullmatch(path) or path.endswith(".model"))]


def _refuse_dangerous(paths: list[str]) -> None:
    for path in paths:
        if path.lower().endswith(PICKLES):
            raise UnfitModel(f"{path}: may hold pickled objects", hint="convert the weights to safetensors")
        if path.endswith(".py"):
            raise UnfitModel(f"{path}: custom code, which tidegate never runs", hint="remove it from the folder")
        if not _TAGGABLE.fullmatch(path):
            raise UnfitModel(f"{path}: MLflow cannot keep a digest under this name", hint="rename the file")


def _refuse_incomplete(folder: Path, paths: list[str]) -> None:
    if not paths:
        raise UnfitModel(f"{folder}: no files there; expected a Hugging Face directory")
    if "config.json" not in paths:
        raise UnfitModel(f"{folder}: no config.json; expected a Hugging Face directory")
    if not any(path.endswith(".safetensors") for path in paths):
        raise UnfitModel(f"{folder}: no *.safetensors; tidegate serves no other weights")
    if not {"tokenizer.json", "tokenizer_config.json", "tokenizer.model"} & set(paths):
        raise UnfitModel(f"{folder}: no tokenizer; expected tokenizer.json beside config.json")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnfitModel(f"{path}: not JSON: {error}") from error
    return content if isinstance(content, dict) else {}
