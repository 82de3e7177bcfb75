"""A saved cache: torch's portable artifacts, the kernels that they name, and the key under which both are valid.

    key.json        the factors, and the digest of every other file
    artifacts.bin   what torch.compiler.save_cache_artifacts gave
    kernels/        compiled C++ for a CPU, as it lay in inductor's folder

The kernels are there because torch's artifacts hold C++ as source: without them every start on a CPU compiles it
again, and needs a compiler. Triton's kernels for a GPU are in the artifacts themselves.

torch has a key of its own for each graph and compiles again in silence when it misses. And it does not look at
everything: which instructions a CPU has is not in a graph's key, and kernels are built for those of the machine.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine_images.entrypoint import compile_key

from .job import TrialFailure


def factors(model: Any, options: Mapping[str, Any], shapes: Iterable[str], device: str) -> dict[str, str]:
    """Every factor by name, for `model` compiled here with `options`; the machine's are those of any engine."""
    import torch

    return {
        **compile_key.machine_factors(os.environ, on_cpu=device == "cpu"),
        "model_code": code_digest(model),
        "model_structure": structure_digest(model),
        "shapes": " ".join(shapes),
        **{f"option:{name}": str(value) for name, value in options.items()},
        **({"threads": str(torch.get_num_threads())} if device == "cpu" else {}),
    }


def code_digest(model: Any) -> str:
    """Over the sources of every class in the model and its parents; torch's own come with its version."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    files = {source for kind in kinds if (source := _source_of(kind))}
    digest = hashlib.sha256()
    # By content alone: the same code in another folder is the same code.
    for content in sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files):
        digest.update(content.encode())
    return digest.hexdigest()


def structure_digest(model: Any) -> str:
    """Over names, shapes and types of all weights, not their values: versions of one model share a cache."""
    digest = hashlib.sha256()
    for name, tensor in _state(model):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
    return digest.hexdigest()


def _state(model: Any) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _source_of(kind: type) -> Path | None:
    if kind.__module__.partition(".")[0] in {"torch", "builtins", "abc", "typing"}:
        return None
    try:
        found = inspect.getsourcefile(kind)
    except TypeError:
        return None
    return Path(found) if found and Path(found).is_file() else None


FORMAT = 1
KEY, ARTIFACTS, KERNELS = "key.json", "artifacts.bin", "kernels"
COMPILED = {".so", ".o"}


def save(folder: Path, factors: Mapping[str, str], inductor: Path) -> int:
    """Write what this process compiled; how many bytes. `folder` must not exist.

    Raises:
        Failure: torch kept nothing.
    """
    import torch

    kept = torch.compiler.save_cache_artifacts()
    if kept is None:
        raise TrialFailure("nothing_saved", "torch kept no artifacts of this model, so there is nothing to save")
    folder.mkdir(parents=True)
    (folder / ARTIFACTS).write_bytes(kept[0])
    for kernel in kernels(inductor):
        target = folder / KERNELS / kernel.relative_to(inductor)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel, target)
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    key = {"format": FORMAT, "factors": dict(factors), "files": {name: _digest(path) for name, path in files.items()}}
    (folder / KEY).write_text(json.dumps(key, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return sum(path.stat().st_size for path in files.values())


def load(folder: Path, factors: Mapping[str, str], inductor: Path) -> None:
    """Hand a saved cache to torch, and its kernels to inductor's folder.

    Raises:
        Failure: it is not whole, or another key's; torch was given nothing then. Artifacts are pickles, so they are
            read only once their digest is right.
    """
    key = _read_key(folder)
    found = compile_key.differences(key["factors"], factors)
    if found:
        raise TrialFailure("other_key", f"{folder} is no cache for this: {'; '.join(found)}")
    _check_files(folder, key["files"])
    for kernel in (name for name in key["files"] if name.startswith(f"{KERNELS}/")):
        target = inductor / Path(kernel).relative_to(KERNELS)
        target.parent.mkdir(parents=True, exist_ok=True)
        # With its mode: inductor loads it as it lies there.
        shutil.copy(folder / kernel, target)
    _populate(folder / ARTIFACTS)


def kernels(inductor: Path) -> list[Path]:
    """The compiled files in inductor's folder."""
    return sorted(path for path in inductor.rglob("*") if path.suffix in COMPILED and path.is_file())


def _populate(artifacts: Path) -> None:
    import torch

    if torch.compiler.load_cache_artifacts(artifacts.read_bytes()) is None:
        raise TrialFailure("damaged_cache", f"{artifacts}: torch cannot read its own artifacts")


def _read_key(folder: Path) -> dict[str, Any]:
    try:
        key = json.loads((folder / KEY).read_text(encoding="utf-8"))
        right = key["format"] == FORMAT and {"factors", "files"} <= key.keys()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrialFailure(
            "damaged_cache", f"{folder} holds no saved cache: {KEY} is missing or cannot be read"
        ) from error
    if not right:
        raise TrialFailure("damaged_cache", f"{folder / KEY} is of another format; expected {FORMAT}")
    return key  # type: ignore[no-any-return]


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, digest in files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise TrialFailure("damaged_cache", f"{folder / KEY} names {name}, outside of the folder")
        if not path.is_file():
            raise TrialFailure("damaged_cache", f"{path} is missing")
        if _digest(path) != digest:
            raise TrialFailure("damaged_cache", f"{path} is not the file that was saved: its digest differs")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
