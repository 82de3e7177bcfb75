"""The prompts of a load, with what drift looks at in each; read once, before the first user asks."""

from __future__ import annotations

import json
from pathlib import Path

from gates.adapters.embeddings import WordEmbeddings
from gates.adapters.language import LanguageIds
from gates.adapters.topics import TopicModel
from gates.drift.features import PromptFeatures

LANGUAGE_CHARACTERS = 1000
"""Of a prompt, that tell its language."""


def read_prompts(path: Path) -> list[str]:
    """One prompt per line, plain or as a JSON object with a `prompt`."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [json.loads(line)["prompt"] if line.startswith("{") else line for line in lines]


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
