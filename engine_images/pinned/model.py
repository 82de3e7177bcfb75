"""An option of vLLM's server and what a version of vLLM knows, as its own parser and registries say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.core.model import Value


class Kind(StrEnum):
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

    kind: Kind = Kind.TEXT
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
