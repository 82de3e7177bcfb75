"""What each pinned version of vLLM accepts: its options, architectures and quantization methods.

Kept as data, one generated file for each version (`make pin-vllm` writes it), so that a spec is judged where no vLLM
is installed. It is the CPU's; a second file has the options that differ on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

from engine_images.choices import EnginePlatform
from tidegate.core.model import Value


class OptionKind(StrEnum):
    """How vLLM reads the value of an option."""

    TEXT = "text"
    FLAG = "flag"
    """True or false, without a value on the command line."""
    INTEGER = "integer"
    COUNT = "count"
    """A whole number, or one with a unit: `8k` is 8000, `8K` is 8192."""
    LENGTH = "length"
    """A count, or `auto`: as much as fits."""
    NUMBER = "number"
    JSON = "json"
    """A mapping or a list."""
    OBJECT = "object"
    """A mapping with known keys."""
    TEXT_OR_JSON = "text_or_json"
    TEXT_OR_FLAG = "text_or_flag"


class Option(Value):
    """One option of `vllm serve`."""

    kind: OptionKind = OptionKind.TEXT
    negatable: bool = False
    """A flag that can be switched off too: `--no-enable-prefix-caching`."""
    choices: tuple[int | str, ...] = ()
    """The only values; empty when any will do."""
    fields: tuple[str, ...] = ()
    """The only keys of an object."""
    many: bool = False
    """Takes one value or several."""
    repeated: bool = False
    """Several values are written as the option several times."""
    default: bool | int | float | str | None = None
    """None also when vLLM finds it out at start."""
    deprecated: bool = False


class Purpose(StrEnum):
    """What an architecture is for."""

    GENERATE = "generate"
    """Answers prompts."""
    DRAFT = "draft"
    """Guesses tokens for another model: speculative decoding."""
    POOL = "pool"
    """Gives embeddings, scores or classes."""


class PinnedVllm(Value):
    """What one version of vLLM accepts."""

    vllm: str
    options: Mapping[str, Option]
    architectures: Mapping[str, Purpose]
    removed_architectures: Mapping[str, str]
    """The last version of vLLM that had it."""
    quantization: tuple[str, ...]
    """Methods of quantization, without the deprecated ones."""


_NAME = re.compile(r"vllm-([\d.]+)\.json")
_OPTIONS = TypeAdapter(dict[str, Option])


def known_versions() -> tuple[str, ...]:
    """The versions of vLLM that `pinned_vllm` knows."""
    names = (_NAME.fullmatch(entry.name) for entry in files("engine_images.arguments").iterdir())
    return tuple(sorted(name[1] for name in names if name))


@cache
def pinned_vllm(version: str, platform: EnginePlatform = EnginePlatform.CUDA) -> PinnedVllm | None:
    """What this version of vLLM accepts; None for a version that nobody has described yet.

    Without a platform, the one that accepts most.
    """
    if version not in known_versions():
        return None
    folder = files("engine_images.arguments")
    pinned = PinnedVllm.model_validate_json((folder / f"vllm-{version}.json").read_text(encoding="utf-8"))
    if platform is EnginePlatform.CPU:
        return pinned
    on_gpu = _OPTIONS.validate_json((folder / f"vllm-{version}-cuda.json").read_text(encoding="utf-8"))
    return pinned.model_copy(update={"options": {**pinned.options, **on_gpu}})
