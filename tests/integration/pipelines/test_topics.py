"""Topic clusters of real sentences with the shipped embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates.adapters.text_models import WordEmbeddings
from pipelines.adapters.load.prompts import TopicModel, fit_topics, load_topics
from tidegate.core.errors import OutsideError

ABOUT = {
    "cooking": "How long do I cook {n} grams of {what} rice with onions?",
    "trains": "Which train leaves Berlin for {what} at {n} o'clock?",
    "money": "Please refund the payment of {n} dollars for my {what} invoice.",
}
WORDS = ("brown", "white", "fresh", "yellow", "basic")


@pytest.fixture(scope="module")
def embedder() -> WordEmbeddings:
    return WordEmbeddings()


def prompts(start: int, count: int) -> dict[str, list[str]]:
    numbers = range(start, start + count)
    return {topic: [text.format(n=n, what=WORDS[n % 5]) for n in numbers] for topic, text in ABOUT.items()}


def fitted(embedder: WordEmbeddings, *, topics: int = 3) -> TopicModel:
    model = fit_topics(embedder, [text for texts in prompts(0, 40).values() for text in texts], topics=topics)
    assert model is not None
    return model


def test_new_prompts_of_one_subject_share_a_topic_and_subjects_do_not(embedder: WordEmbeddings) -> None:
    model = fitted(embedder)
    found = {subject: set(model.topics(embedder, texts)) for subject, texts in prompts(100, 20).items()}
    assert all(len(topics) == 1 for topics in found.values()), found
    assert len(set.union(*found.values())) == 3


def test_the_same_prompts_give_the_same_topics_and_survive_being_written_down(
    embedder: WordEmbeddings, tmp_path: Path
) -> None:
    model = fitted(embedder)
    assert fitted(embedder) == model
    model.save(tmp_path / "users.topics.json")
    assert load_topics(tmp_path / "users.topics.json") == model


def test_a_prompt_without_words_has_no_topic(embedder: WordEmbeddings) -> None:
    assert fitted(embedder).topics(embedder, [""]) == [None]


def test_too_few_or_too_equal_prompts_have_no_topics(embedder: WordEmbeddings) -> None:
    assert fit_topics(embedder, ["How are you?"] * 500) is None
    assert fit_topics(embedder, list(prompts(0, 8)["money"])) is None
    assert fit_topics(embedder, []) is None


def test_no_file_is_no_model_and_another_file_is_told(tmp_path: Path) -> None:
    assert load_topics(tmp_path / "none.json") is None
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(OutsideError, match="is no topic model"):
        load_topics(tmp_path / "odd.json")
