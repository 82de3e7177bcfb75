"""What reads answers: shipped embeddings and languages; nothing from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gates.adapters.text_models import LanguageIds, WordEmbeddings
from gates.answers.likeness import paired_answer
from gates.model import EngineReply
from gates.text import nearness

OFFLINE = """
import logging, sys
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        raise SystemExit(f"{event} {args}")
sys.addaudithook(watch)
from gates.adapters.text_models import WordEmbeddings
from gates.adapters.text_models import LanguageIds
print(WordEmbeddings().embed(["the capital is Paris"]).shape, LanguageIds().language("Wo bleibt meine Bestellung?"))
assert not logging.getLogger().handlers
assert not {"wordllama", "requests"} & set(sys.modules)
"""
"""A process of its own: whether something was loaded before cannot be told in this one."""


def test_embeddings_and_languages_need_no_network_and_touch_no_logger(tmp_path: Path) -> None:
    # An empty home has no cache to hide a download behind.
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("(1, 256) de\n", "")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def embedder() -> WordEmbeddings:
    return WordEmbeddings()


@pytest.fixture(scope="module")
def languages() -> LanguageIds:
    return LanguageIds()


def test_embeddings_are_the_package_s_own(embedder: WordEmbeddings) -> None:
    wordllama = pytest.importorskip("wordllama")
    folder = Path(wordllama.__file__).parent
    reference = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    texts = ["The capital of France is Paris.", "Ein Satz über Lampen", "你好，世界", "42", "x" * 500]
    np.testing.assert_allclose(embedder.embed(texts), reference.embed(texts, norm=True), atol=1e-5)


def test_embeddings_have_unit_length_or_none_and_take_any_text(embedder: WordEmbeddings) -> None:
    rows = embedder.embed(["Paris", "", "half a character \ud83d", "\x00", " "])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 0, 1, 1, 1], atol=1e-5)
    assert embedder.embed([]).shape == (0, 256)


@pytest.mark.parametrize(
    ("one", "nearer", "farther"),
    [
        ("The capital of France is Paris.", "Paris is France's capital city.", "Quarterly earnings rose."),
        ("Press the button to reset the lamp.", "Push the button and the lamp resets.", "Your parcel is on its way."),
        ("You can return it within 30 days.", "Returns are possible for thirty days.", "Cats sleep all day long."),
    ],
)
def test_nearness_follows_meaning(embedder: WordEmbeddings, one: str, nearer: str, farther: str) -> None:
    given = embedder.embed([one, nearer, farther])
    assert nearness(given[0], given[0]) == pytest.approx(1)
    assert nearness(given[0], given[1]) > 0.3 > nearness(given[0], given[2])


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The capital of France is Paris.", "en"),
        ("Die Hauptstadt von Frankreich heißt Paris.", "de"),
        ("Je ne peux pas vous aider avec cela.", "fr"),
        ("東京は日本の首都です", "ja"),
        ("你好，世界", "zh"),
        ("", ""),
        ("42", ""),
        ("OK", ""),
    ],
)
def test_a_language_is_told_or_left_open(languages: LanguageIds, text: str, language: str) -> None:
    assert languages.language(text) == language


def a_reply(text: str) -> EngineReply:
    return EngineReply(text=text, finish_reason="stop", output_tokens=9, ttft_seconds=0.1)


def test_a_pair_is_read_and_its_words_stay_behind(embedder: WordEmbeddings) -> None:
    stable, canary = a_reply("The parcel arrives tomorrow."), a_reply("Je ne peux pas vous aider avec cela.")
    pair = paired_answer(stable, canary, embedder=embedder)
    assert pair.stable
    assert pair.canary
    assert (pair.stable.refusal, pair.canary.refusal) == (False, True)
    assert pair.similarity is not None
    assert pair.similarity < 0.3
    assert "parcel" not in pair.model_dump_json()
    assert paired_answer(stable, None).similarity is None
    assert paired_answer(a_reply(""), a_reply("\n"), embedder=embedder).similarity is None
    assert paired_answer(stable, stable, embedder=embedder).similarity == 1
