"""The files of a model version, as far as they tell whether it can be served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_images.tensors import Tensor

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
INDEX_FILE = "model.safetensors.index.json"
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
