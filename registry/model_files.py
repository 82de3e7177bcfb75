"""Files of a model version: which directories tidegate registers (data only, nothing that runs when it is loaded),
and the digests that prove that files are the registered ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry.errors import UnfitModel
from tidegate.core.model import Value
from tidegate.core.text import json_of


class FileDifference(Value):
    """How found files differ from the expected ones; falsy when they do not."""

    missing: tuple[str, ...] = ()
    """Registered, and not there."""
    extra: tuple[str, ...] = ()
    """There, and not registered: a loader might read it all the same."""
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.changed)

    def __str__(self) -> str:
        """As a person reads it: `changed: model.safetensors; missing: config.json`."""
        kinds = {"changed": self.changed, "missing": self.missing, "extra": self.extra}
        return "; ".join(f"{kind}: {', '.join(paths)}" for kind, paths in kinds.items() if paths)


def whole_digest(files: Mapping[str, str]) -> str:
    """One digest over all files: their paths count too, their order on disk does not.

    It is what `sha256sum FILES | sha256sum` prints when FILES are sorted by their bytes, so that it can be
    checked without tidegate.
    """
    lines = (f"{files[path]}  {path}\n" for path in sorted(files, key=str.encode))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def compare(expected: Mapping[str, str], found: Mapping[str, str]) -> FileDifference:
    """Name every file that is missing, extra or changed."""
    return FileDifference(
        missing=tuple(sorted(expected.keys() - found.keys())),
        extra=tuple(sorted(found.keys() - expected.keys())),
        changed=tuple(sorted(path for path in expected.keys() & found.keys() if expected[path] != found[path])),
    )


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below `folder`, by its relative path with forward slashes.

    Links to files are read through, as Hugging Face's own cache consists of them.

    Raises:
        UnfitModel: a link leads out of the folder, and not into the hub's cache that the folder belongs to.
    """
    root = _root_of_links(folder.resolve())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        # `/proc/self/environ`, or a key, would otherwise end in the registry and in images.
        if not path.resolve().is_relative_to(root):
            raise UnfitModel(f"{path}: a link out of {root}", hint="copy the file itself into the folder")
    return {path.relative_to(folder).as_posix(): _digest_file(path) for path in files}


def _root_of_links(folder: Path) -> Path:
    """The hub's cache is `models--ORGANISATION--NAME/snapshots/COMMIT` with links into `blobs` next to `snapshots`."""
    repository = folder.parent.parent
    of_the_hub = folder.parent.name == "snapshots" and repository.name.startswith("models--")
    return repository if of_the_hub else folder


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".msgpack", ".h5")
"""Weights in these formats are, or may contain, pickled objects, or need a loader that tidegate does not trust."""

CODE = ".py"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
"""One of these says how a folder's model makes text into tokens."""
TOKENIZER_FILES = re.compile(r"(tokenizer|special_tokens|added_tokens|vocab|merges|chat_template|config|spiece)[^/]*")
"""What `AutoTokenizer` reads, next to sentencepiece's `*.model`."""

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
    _refuse_incomplete(str(folder), paths)
    return card_of(str(folder), paths, {path: (folder / path).read_bytes() for path in paths if is_described_by(path)})


def is_described_by(path: str) -> bool:
    """Whether the file says what the model is, and what loading it would run: any JSON at the top may."""
    return "/" not in path and path.endswith(".json")


def card_of(place: str, paths: Sequence[str], described: Mapping[str, bytes]) -> ModelCard:
    """As `read_card`, of files that are elsewhere.

    Args:
        place: where they are, for messages.
        paths: of all that would be served.
        described: the content of those that `is_described_by` names.

    Raises:
        UnfitModel: as `read_card`.
    """
    _refuse_dangerous(paths)
    _refuse_incomplete(place, paths)
    read = {path: _json_of(f"{place}/{path}", content) for path, content in described.items()}
    for path in sorted(read):
        if "auto_map" in read[path]:
            raise UnfitModel(
                f"{place}/{path}: auto_map asks for custom code, which tidegate never runs",
                hint="remove `auto_map`, if vLLM knows the architecture itself",
            )
    config = read["config.json"]
    architectures = config.get("architectures") or []
    # The flavor names one class; with several, which of them MLflow would load is a guess.
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise UnfitModel(
            f"{place}/config.json: found architectures {architectures}; expected exactly one",
            hint="set `architectures` to one",
        )
    return ModelCard(
        architecture=architectures[0],
        transformers_version=config.get("transformers_version"),
        dtype=config.get("dtype") or config.get("torch_dtype"),
    )


def tokenizer_files(paths: Iterable[str]) -> list[str]:
    """Those of the files that make a tokenizer without the model."""
    return [path for path in paths if "/" not in path and (TOKENIZER_FILES.fullmatch(path) or path.endswith(".model"))]


def _refuse_dangerous(paths: Sequence[str]) -> None:
    for path in paths:
        if path.lower().endswith(PICKLES):
            raise UnfitModel(f"{path}: may hold pickled objects", hint="convert the weights to safetensors")
        if path.endswith(CODE):
            raise UnfitModel(f"{path}: custom code, which tidegate never runs", hint="remove it from the folder")
        if not _TAGGABLE.fullmatch(path):
            raise UnfitModel(f"{path}: MLflow cannot keep a digest under this name", hint="rename the file")


def _refuse_incomplete(place: str, paths: Sequence[str]) -> None:
    if not paths:
        raise UnfitModel(
            f"{place}: no files there; expected a Hugging Face directory",
            hint="name the folder that `save_pretrained` wrote",
        )
    if "config.json" not in paths:
        raise UnfitModel(
            f"{place}: no config.json; expected a Hugging Face directory",
            hint="name the folder that `save_pretrained` wrote",
        )
    if not any(path.endswith(".safetensors") for path in paths):
        raise UnfitModel(
            f"{place}: no *.safetensors; tidegate serves no other weights",
            hint="convert them: save_pretrained(..., safe_serialization=True)",
        )
    if not set(TOKENIZERS) & set(paths):
        raise UnfitModel(f"{place}: no tokenizer; expected tokenizer.json next to config.json")


def _json_of(place: str, content: bytes) -> dict[str, Any]:
    try:
        found = json_of(content)
    except ValueError as error:
        raise UnfitModel(f"{place}: not JSON: {error}", hint="download or save the file again") from error
    return found if isinstance(found, dict) else {}
