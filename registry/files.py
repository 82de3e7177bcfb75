"""Files of a model version: which are served (data only, nothing that runs when it is loaded), and their digests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from registry.conventions import SUMS
from registry.errors import UnfitModel
from registry.model import Survey
from tidegate.core.text import json_of

CONFIG, WEIGHTS, CODE = "config.json", ".safetensors", ".py"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".msgpack", ".h5")
"""Weights in these formats are, or may contain, pickled objects, or need a loader that tidegate does not trust."""
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
"""One of these says how a folder's model makes text into tokens."""
COMPONENTS = ("components/tokenizer", "components/processor")
"""Next to the model's folder: where `mlflow.transformers` saves what makes text into tokens."""
DESCRIPTIONS = (
    "MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", "*input_example.json", "metadata/*", f"*{SUMS}",
)  # fmt: skip
"""What MLflow and tidegate write next to the files of a model, and no engine reads."""
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def compare(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Name every file that is another, missing or extra, which a loader might read all the same; empty without one."""
    kinds = {
        "changed": [path for path in expected.keys() & found.keys() if expected[path] != found[path]],
        "missing": expected.keys() - found.keys(),
        "extra": found.keys() - expected.keys(),
    }
    return "; ".join(f"{kind}: {', '.join(sorted(paths))}" for kind, paths in kinds.items() if paths)


def sums_of(files: Mapping[str, str]) -> str:
    """The digests of files, by their paths, as `sha256sum -c` reads them: sorted by their bytes."""
    return "".join(f"{files[path]}  {path}\n" for path in sorted(files, key=str.encode))


def read_sums(text: str) -> dict[str, str]:
    """The digests in a text that `sums_of` wrote.

    Raises:
        ValueError: a line is no digest of a file.
    """
    found = [_LINE.fullmatch(line) for line in text.split("\n")[:-1]]
    if not all(found):
        raise ValueError("a line is no SHA-256, two blanks and a path")
    return {line[2]: line[1] for line in found if line}


def whole_digest(files: Mapping[str, str]) -> str:
    """One digest over all files: their paths count too, their order on disk does not."""
    return hashlib.sha256(sums_of(files).encode()).hexdigest()


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below `folder`, by its relative path with forward slashes; its `SUMS` is left out.

    Links to files are read through, as Hugging Face's own cache consists of them.

    Raises:
        UnfitModel: a link leads out of the folder, and not into the hub's cache that the folder belongs to.
    """
    # The hub's cache is `models--ORGANISATION--NAME/snapshots/COMMIT` with links into `blobs` next to `snapshots`.
    root = folder.resolve()
    if root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--"):
        root = root.parent.parent
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS)
    for path in files:
        # `/proc/self/environ`, or a key, would otherwise end in the registry and in images.
        if not path.resolve().is_relative_to(root):
            raise UnfitModel(f"{path}: a link out of {root}", hint="copy the file itself into the folder")
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in files}


def digest_file(path: Path) -> str:
    """Its SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_layout(uri: str, address: str, listed: Mapping[str, int]) -> Survey:
    """The one folder with configuration and safetensors, and the tokenizer next to it where it has none of its own.

    Args:
        uri: of the version, for messages.
        address: of its files.
        listed: the size of each, by its path.

    Raises:
        UnfitModel: there is no such folder, or there are several.
    """
    weighty = {path.rpartition("/")[0] for path in listed if path.endswith(WEIGHTS)}
    candidates = sorted(each for each in weighty if _joined(each, CONFIG) in listed)
    outer = [each for each in candidates if not any(_is_below(each, other) for other in candidates)]
    if not outer:
        raise UnfitModel(
            f"{uri}: no folder of it has {CONFIG} and *{WEIGHTS}",
            hint="log what save_pretrained(..., safe_serialization=True) writes; merge an adapter into its model first",
        )
    if len(outer) > 1:
        raise UnfitModel(
            f"{uri}: {len(outer)} folders could be served, such as {outer[0] or 'the top'} and {outer[1]}",
            hint="register the one that you mean: mlflow.register_model('runs:/RUN/PATH', NAME)",
        )
    [folder] = folders = outer
    if not any(_joined(folder, name) in listed for name in TOKENIZERS):
        next_to = [_joined(folder.rpartition("/")[0], name) for name in COMPONENTS] if folder else []
        folders = [folder, *(each for each in next_to if any(_is_below(path, each) for path in listed))]
    places = places_in(folders, listed)
    left_out = {name for name in places if name.lower().endswith((*PICKLES, CODE))}
    served = {
        name: path
        for name, path in places.items()
        if name not in left_out and not any(fnmatch(path, pattern) for pattern in DESCRIPTIONS)
    }
    return Survey(
        uri=uri,
        address=address,
        folders=tuple(folders),
        places=served,
        sizes={name: listed[path] for name, path in served.items()},
        left_out=tuple(path for name, path in places.items() if name in left_out),
    )


def places_in(folders: Sequence[str], paths: Iterable[str]) -> dict[str, str]:
    """The path among a version's files, by the path below `folders`, the first of which lies on top."""
    known, places = sorted(paths), dict[str, str]()
    for folder in reversed(folders):
        places |= {path[len(folder) + 1 :] if folder else path: path for path in known if _is_below(path, folder)}
    return dict(sorted(places.items()))


def _is_below(path: str, folder: str) -> bool:
    return path != folder and (not folder or path.startswith(f"{folder}/"))


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def is_described_by(path: str) -> bool:
    """Whether the file says what the model is, and what loading it would run: any JSON at the top may."""
    return "/" not in path and path.endswith(".json")


def architecture_of(place: str, paths: Iterable[str], content: Callable[[str], bytes]) -> str:
    """Read the model's own description and refuse what tidegate would not serve; the class in transformers.

    Args:
        place: where the files are, for messages.
        paths: of all that would be served.
        content: of one that `is_described_by` names.

    Raises:
        UnfitModel: a file is missing, may hold pickled objects, or asks for custom code.
    """
    paths = sorted(paths)
    _refuse_unserved(place, paths)
    read = {path: _json_of(f"{place}/{path}", content(path)) for path in paths if is_described_by(path)}
    for path, said in read.items():
        if "auto_map" in said:
            raise UnfitModel(
                f"{place}/{path}: auto_map asks for custom code, which tidegate never runs",
                hint="remove `auto_map`, if vLLM knows the architecture itself",
            )
    architectures = read[CONFIG].get("architectures") or []
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise UnfitModel(
            f"{place}/{CONFIG}: found architectures {architectures}; expected exactly one",
            hint="set `architectures` to one",
        )
    return architectures[0]


def _refuse_unserved(place: str, paths: Sequence[str]) -> None:
    for path in paths:
        if path.lower().endswith(PICKLES):
            raise UnfitModel(f"{path}: may hold pickled objects", hint="convert the weights to safetensors")
        if path.endswith(CODE):
            raise UnfitModel(f"{path}: custom code, which tidegate never runs", hint="remove it from the folder")
        if not path.isprintable() or "\\" in path:
            raise UnfitModel(f"{place}: {path!r} is no name for a file of a model", hint="rename the file")
    missing = (
        "no files there" if not paths
        else f"no {CONFIG}" if CONFIG not in paths
        else f"no *{WEIGHTS}; tidegate serves no other weights" if not any(each.endswith(WEIGHTS) for each in paths)
        else "no tokenizer" if not set(TOKENIZERS) & set(paths)
        else ""
    )  # fmt: skip
    if missing:
        raise UnfitModel(
            f"{place}: {missing}; expected a Hugging Face directory",
            hint="name the folder that save_pretrained(..., safe_serialization=True) wrote",
        )


def _json_of(place: str, content: bytes) -> dict[str, Any]:
    try:
        found = json_of(content)
    except ValueError as error:
        raise UnfitModel(f"{place}: not JSON: {error}", hint="download or save the file again") from error
    return found if isinstance(found, dict) else {}
