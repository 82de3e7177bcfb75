"""The prompts of a load with what drift looks at in each; topics are clusters of embeddings, frozen in a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.cluster import vq

from gates.adapters.text_models import LanguageIds, WordEmbeddings
from gates.ports import Embedder
from tidegate.core.errors import OutsideError
from tidegate.core.model import Value

LEAST_PROMPTS = 20
"""For one topic, on average: fewer prompts make fewer topics."""


class TopicModel(Value):
    """Centres of clusters, in the embedder's space; a prompt's topic is the nearest."""

    centres: tuple[tuple[float, ...], ...]

    def topics(self, embedder: Embedder, prompts: Sequence[str]) -> list[int | None]:
        """The number of each prompt's topic, 0 is the largest; None for a prompt without words.

        Another embedder than that of the fit gives numbers without meaning.
        """
        vectors = embedder.embed(prompts)
        nearest, _ = vq.vq(vectors.astype(np.float64), self._centres)
        worded = np.any(vectors != 0, axis=1)
        return [int(topic) if has_words else None for topic, has_words in zip(nearest, worded, strict=True)]

    def save(self, path: Path) -> None:
        """Write it where `load_topics` finds it."""
        path.write_text(self.model_dump_json() + "\n", encoding="utf-8")

    @cached_property
    def _centres(self) -> NDArray[np.float64]:
        return np.array(self.centres, dtype=np.float64)


def fit_topics(embedder: Embedder, prompts: Sequence[str], *, topics: int = 8, seed: int = 0) -> TopicModel | None:
    """Find topics in the prompts of the reference window; the same prompts give the same topics.

    None when there are too few different prompts to speak of topics.
    """
    vectors = embedder.embed(prompts).astype(np.float64)
    vectors = vectors[np.any(vectors != 0, axis=1)]
    different = len(np.unique(vectors, axis=0))
    wanted = min(topics, len(vectors) // LEAST_PROMPTS, different)
    if wanted < 2:
        return None
    centres, labels = vq.kmeans2(vectors, wanted, minit="++", seed=np.random.default_rng(seed))
    sizes = np.bincount(labels, minlength=wanted)
    # A centre that attracts nobody would never be seen in the reference.
    order = [int(index) for index in np.argsort(-sizes, kind="stable") if sizes[index]]
    return TopicModel(centres=tuple(tuple(map(float, centres[index])) for index in order))


def topics_file(records: Path) -> Path:
    """Where the load of these records looks for its topic model when it starts."""
    return records.with_suffix(".topics.json")


def load_topics(path: Path) -> TopicModel | None:
    """The model that `save` wrote; None when there is none.

    Raises:
        OutsideError: when the file is something else.
    """
    try:
        return TopicModel.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValidationError, OSError, UnicodeDecodeError) as error:
        raise OutsideError(f"{path} is no topic model", hint="remove it, or fit it again", detail=str(error)) from error


LANGUAGE_CHARACTERS = 1000
"""Of a prompt, that tell its language."""


class PromptFeatures(Value):
    """What is known of a prompt before it is sent."""

    characters: int
    language: str = ""
    """ISO 639-1; empty when it is not known or too short to tell."""
    topic: int | None = None
    """The cluster of a frozen topic model; None without one."""


def describe_prompts(prompts: list[str], topics: TopicModel | None) -> dict[str, PromptFeatures]:
    """The features of each prompt: 0.1 ms each, and half a second for the models."""
    numbers = topics.topics(WordEmbeddings(), prompts) if topics else [None] * len(prompts)
    detector = LanguageIds()
    return {
        prompt: PromptFeatures(
            characters=len(prompt), language=detector.language(prompt[:LANGUAGE_CHARACTERS]), topic=topic
        )
        for prompt, topic in zip(prompts, numbers, strict=True)
    }
