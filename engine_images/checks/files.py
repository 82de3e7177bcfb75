"""The files of a model version, as far as they tell whether it can be served, and what of them stands in the way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_images.memory import Tensor
from tidegate.core.model import Value


class Obstacle(Value):
    """One reason why a model version cannot be served as the settings say."""

    where: str
    """A file of the version (`config.json`), or a part of the spec (`engine.vllm.args.max-model-len`)."""
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.where}: found {self.found}; expected {self.expected}"


ARGS = "engine.vllm.args"
"""The part of the spec that most obstacles are about."""

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
ADAPTER_FILE = "adapter_config.json"


@dataclass(frozen=True)
class VersionFiles:
    """A Hugging Face directory without its weights' contents; paths are relative, with forward slashes."""

    sizes: Mapping[str, int]
    """Bytes of every file."""
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """JSON objects."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Files that are not what their name says, and why."""
    pickles: tuple[str, ...] = ()
    """Files that hold pickled Python objects."""
    tensors: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict)
    """By safetensors file."""
    largest_token: int | None = None
    """The largest id that the tokenizer gives; None when there is no readable tokenizer."""

    def document(self, name: str) -> Mapping[str, Any]:
        """The JSON object of that name; empty when it is not there."""
        return self.documents.get(name, {})

    def weights_below(self, folder: str) -> tuple[Tensor, ...]:
        """The tensors of the model in `folder`, which is empty for the version itself."""
        return tuple(
            tensor for name, tensors in self.tensors.items() if name.rpartition("/")[0] == folder for tensor in tensors
        )


_SHARD = re.compile(r"(.*)-(\d+)-of-(\d+)(\.safetensors)")


def file_obstacles(files: VersionFiles) -> Iterator[Obstacle]:
    """Everything that is missing, damaged, or must not be there."""
    yield from (Obstacle(where=name, found=why, expected="a whole file") for name, why in files.damaged.items())
    for name in files.pickles:
        yield Obstacle(
            where=name,
            found="a file of pickled objects, which runs code when it is read",
            expected="safetensors only; register the version without it",
        )
    yield from _code(files)
    yield from _conversation(files)
    yield from _weights(files)


def _code(files: VersionFiles) -> Iterator[Obstacle]:
    """As `register` refuses it: who made a version with MLflow's own client has not met that."""
    for name in sorted(files.sizes):
        if name.endswith((".py", ".pyc", ".so")):
            yield Obstacle(where=name, found="code", expected="none: a model version's own code is never run")
    for name, document in files.documents.items():
        if "auto_map" in document:
            found = "auto_map, which asks for a model version's own code"
            yield Obstacle(where=name, found=found, expected="a model that the engine knows itself")


def _conversation(files: VersionFiles) -> Iterator[Obstacle]:
    for name in (CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE):
        if name not in files.sizes:
            yield Obstacle(where=name, found="nothing", expected="the whole Hugging Face directory")
    has_template = TEMPLATE_FILE in files.sizes or files.document(TOKENIZER_CONFIG_FILE).get("chat_template")
    if not has_template and TOKENIZER_CONFIG_FILE in files.sizes:
        yield Obstacle(where=TEMPLATE_FILE, found="nothing", expected="the model's chat template")


def _weights(files: VersionFiles) -> Iterator[Obstacle]:
    """None at all, or missing parts: `model-00001-of-00003.safetensors` promises two more."""
    shards = {name for name in files.sizes if name.endswith(".safetensors") and "/" not in name}
    if not shards:
        yield Obstacle(where="*.safetensors", found="nothing", expected="weights")
    series = {(match[1], match[3], match[4]): len(match[2]) for name in shards if (match := _SHARD.fullmatch(name))}
    for (start, count, end), digits in sorted(series.items()):
        wanted = [f"{start}-{number:0{digits}d}-of-{count}{end}" for number in range(1, int(count) + 1)]
        missing = [name for name in wanted if name not in shards]
        if missing:
            yield Obstacle(where=_few(missing), found="nothing", expected=f"all {int(count)} parts of the weights")


def _few(names: list[str]) -> str:
    """Names for one line: the first three and how many more."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
