"""Reads the files of a model version: names, JSON, headers of weights, traces of pickle. Never the weights."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from engine_images.adapters.tokenizer import FileTokenizer
from engine_images.adapters.weights import read_header
from engine_images.checks.version import (
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    VersionFiles,
)
from engine_images.errors import NotAModel
from engine_images.tensors import Tensor

PICKLED = re.compile(r".*\.(bin|pt|pth|pkl|pickle|ckpt|joblib)")
"""Names under which pickled objects travel."""
PICKLE_START = re.compile(rb"\x80[\x02-\x05]")
"""How every pickle since protocol 2 begins."""

PROBE = [{"role": "user", "content": "Hello"}]
"""The shortest conversation: a chat template that refuses it refuses everybody's."""


def read_version(folder: Path) -> VersionFiles:
    """Everything about the Hugging Face directory `folder` that the checks ask for."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    damaged: dict[str, str] = {}
    return VersionFiles(
        sizes={name: path.stat().st_size for name, path in paths.items()},
        documents=dict(_documents(paths, damaged)),
        pickles=tuple(name for name, path in paths.items() if PICKLED.fullmatch(name) or _is_pickle(path)),
        tensors=dict(_weights(paths, damaged)),
        largest_token=_tokenizer(folder, paths, damaged),
        damaged=damaged,
    )


def _documents(paths: dict[str, Path], damaged: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, path in paths.items():
        # The tokenizer's own file is megabytes long and read by its library.
        if not name.endswith(".json") or path.name == TOKENIZER_FILE:
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            damaged[name] = f"no JSON: {error}"
            continue
        if isinstance(content, dict):
            yield name, content


def _weights(paths: dict[str, Path], damaged: dict[str, str]) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    for name, path in paths.items():
        if path.suffix != ".safetensors":
            continue
        try:
            header, data_start = read_header(path)
        except NotAModel as error:
            damaged[name] = str(error).removeprefix(f"{path} is ")
            continue
        end = data_start + max((entry.data_offsets[1] for entry in header.values()), default=0)
        if path.stat().st_size != end:
            damaged[name] = f"{path.stat().st_size} bytes, where its header promises {end}"
        yield name, tuple(Tensor(key, entry.dtype, entry.shape) for key, entry in header.items())


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(4)
    if PICKLE_START.match(start):
        return True
    if not start.startswith(b"PK"):
        return False
    # torch.save writes a ZIP file with the pickle inside.
    try:
        with zipfile.ZipFile(path) as archive:
            return any(PICKLED.fullmatch(name) for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


def _tokenizer(folder: Path, paths: dict[str, Path], damaged: dict[str, str]) -> int | None:
    """Try the tokenizer and the chat template on a conversation, as the gates will."""
    if TOKENIZER_FILE not in paths:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(paths[TOKENIZER_FILE]))
    except Exception as error:  # noqa: BLE001 (`tokenizers` has no error of its own)
        damaged[TOKENIZER_FILE] = f"no tokenizer: {error}"
        return None
    _try_template(folder, damaged)
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=None)


def _try_template(folder: Path, damaged: dict[str, str]) -> None:
    try:
        FileTokenizer().render(folder, PROBE)
    except NotAModel as error:
        # Without a cause something is missing or no JSON, which is told by its own name.
        if isinstance(error.__cause__, TemplateError):
            damaged[TEMPLATE_FILE] = f"a template that fails: {error.__cause__}"
