"""Embeddings that need no download: the vectors of words that the package wordllama ships, read as data.

The package's own code is not used: it would go out for a tokenizer that lies beside it, and importing it
sets up the root logger.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from tidegate.core.errors import OutsideError

WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class WordEmbeddings:
    """An `Embedder`: the mean of a text's word vectors, 256 numbers. Reads its files when first asked."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder`.

        Raises:
            OutsideError: when the package is not installed, or not the version with these files.
        """
        rows = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        # A token cut in two can leave half a character, which the tokenizer does not take.
        whole = [text.encode("utf-8", "replace").decode() for text in texts]
        for row, pieces in zip(rows, self._tokenizer.encode_batch(whole, add_special_tokens=False), strict=True):
            if pieces.ids:
                row[:] = self._vectors[pieces.ids].mean(axis=0, dtype=np.float32)
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(sizes > 0, sizes, 1)
        return rows

    @cached_property
    def _vectors(self) -> NDArray[np.float16]:
        # Kept as shipped, in half precision: 16 MB for 32,000 pieces of words.
        return np.asarray(load_file(_shipped(WEIGHTS))["embedding.weight"])

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(_shipped(TOKENIZER)))


def _shipped(name: str) -> Path:
    package = importlib.util.find_spec("wordllama")
    folders = (package and package.submodule_search_locations) or ()
    for folder in folders:
        if (path := Path(folder, name)).exists():
            return path
    raise OutsideError(f"the package wordllama has no {name}", hint="install the version that tidegate's lock names")
