"""Where the Hugging Face folder lies among the files of a model version, however the version was logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

from registry.errors import UnfitModel
from registry.model import ModelLayout
from registry.model_files import CODE, PICKLES, TOKENIZERS

CONFIG = "config.json"
WEIGHTS = ".safetensors"
ADAPTER = "adapter_config.json"
ENOUGH_NAMES = 5
"""Candidates that a message names."""
COMPONENTS = ("components/tokenizer", "components/processor")
"""Next to the model's folder: where `mlflow.transformers` saves what makes text into tokens."""
DESCRIPTIONS = ("MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", "*input_example.json", "metadata/*")
"""What MLflow writes next to the files of a model, and no engine reads."""
TOP = "the top folder"


def find_layout(paths: Iterable[str], *, folder: str | None = None) -> ModelLayout:
    """The one folder with configuration and safetensors, and the tokenizer next to it where it has none of its own.

    Args:
        paths: of all files of the version.
        folder: to take, where there are several.

    Raises:
        UnfitModel: there is no such folder, or there are several and none is named; says which there are.
    """
    known = frozenset(paths)
    candidates = _candidates(known)
    if folder is not None:
        wanted = folder.strip("/").removeprefix("./") if folder != "." else ""
        if wanted not in candidates:
            raise UnfitModel(f"{wanted or TOP} is no folder with {CONFIG} and *{WEIGHTS}", hint=_told(candidates))
        return _laid_out(wanted, known)
    outer = [each for each in candidates if not any(_is_below(each, other) for other in candidates)]
    if not outer:
        raise _nothing_to_serve(known)
    if len(outer) > 1:
        raise UnfitModel(f"several folders could be served: {_named(outer)}", hint="say which: --folder FOLDER")
    return _laid_out(outer[0], known)


def _candidates(paths: frozenset[str]) -> list[str]:
    weighty = {_parent(path) for path in paths if path.endswith(WEIGHTS)}
    return sorted(each for each in weighty if _joined(each, CONFIG) in paths)


def _laid_out(folder: str, paths: frozenset[str]) -> ModelLayout:
    folders = [folder]
    if not any(_joined(folder, name) in paths for name in TOKENIZERS):
        next_to = [_joined(_parent(folder), name) for name in COMPONENTS] if folder else []
        folders += [each for each in next_to if any(_is_below(path, each) for path in paths)]
    files, left_out = {}, []
    for name, path in places_in(folders, paths).items():
        if name.lower().endswith((*PICKLES, CODE)):
            left_out.append(path)
        elif not any(fnmatch(path, pattern) for pattern in DESCRIPTIONS):
            files[name] = path
    return ModelLayout(folders=tuple(folders), files=files, left_out=tuple(left_out))


def places_in(folders: Sequence[str], paths: Iterable[str]) -> dict[str, str]:
    """The path among a version's files, by the path below `folders`, the first of which lies on top."""
    known, places = sorted(paths), dict[str, str]()
    for folder in reversed(folders):
        places |= {
            path.removeprefix(f"{folder}/") if folder else path: path for path in known if _is_below(path, folder)
        }
    return dict(sorted(places.items()))


def _nothing_to_serve(paths: frozenset[str]) -> UnfitModel:
    """What is there instead, and what its owner can do."""
    names = {path.rpartition("/")[2] for path in paths}
    if not paths:
        return UnfitModel("it has no files", hint="log a Hugging Face folder")
    if ADAPTER in names:
        advice = "merge the adapter into its base model (merge_and_unload) and log that"
        return UnfitModel("it holds an adapter without its base model", hint=advice)
    if any(path.lower().endswith(PICKLES) for path in paths) and CONFIG in names:
        advice = "save them with save_pretrained(..., safe_serialization=True)"
        return UnfitModel(f"its weights may hold pickled objects; expected *{WEIGHTS}", hint=advice)
    if "MLmodel" in names and not any(path.endswith(WEIGHTS) for path in paths):
        advice = "logged with save_pretrained=False? mlflow.transformers.persist_pretrained_model brings the weights"
        return UnfitModel(f"it has no weights (*{WEIGHTS})", hint=advice)
    return UnfitModel(f"no folder of it has {CONFIG} and *{WEIGHTS}", hint="log a Hugging Face folder")


def _told(candidates: list[str]) -> str:
    return f"there are {_named(candidates)}" if candidates else "there is none"


def _named(folders: list[str]) -> str:
    more = f" and {len(folders) - ENOUGH_NAMES} more" if len(folders) > ENOUGH_NAMES else ""
    return f"{', '.join(each or TOP for each in folders[:ENOUGH_NAMES])}{more}"


def _is_below(path: str, folder: str) -> bool:
    return path != folder and (not folder or path.startswith(f"{folder}/"))


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
