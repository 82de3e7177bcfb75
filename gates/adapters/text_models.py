"""Models that read text and need no download: word vectors for likeness, and the language of a prompt.

The vectors are those that the package wordllama ships, read as data. The package's own code is not used: it would go
out for a tokenizer that lies next to it, and importing it sets up the root logger. Languages are py3langid's, whose
model of 4 MB lies in the package.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from py3langid.langid import MODEL_FILE, LanguageIdentifier
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


LEAST_CONFIDENCE = 0.2
"""Of 114 languages: a number or a word of few letters stays below, a short sentence comes above."""


class LanguageIds:
    """A `LanguageDetector`. Reads the model when first asked, half a second."""

    def language(self, text: str) -> str:
        """As `LanguageDetector`."""
        found, confidence = self._identifier.classify(text)
        return str(found) if confidence >= LEAST_CONFIDENCE else ""

    @cached_property
    def _identifier(self) -> LanguageIdentifier:
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        # ISO 639-1 has two letters; what it has no name for is told as the nearest that it has.
        identifier.set_languages([label for label in identifier.labels if len(label) == 2])
        return identifier
