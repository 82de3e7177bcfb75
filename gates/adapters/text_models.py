"""Tells the language of a prompt by py3langid, whose model of 4 MB lies in the package: nothing is downloaded."""

from __future__ import annotations

from functools import cached_property

from py3langid.langid import MODEL_FILE, LanguageIdentifier

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
