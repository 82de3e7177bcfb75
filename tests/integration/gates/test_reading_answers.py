"""What reads answers: shipped embeddings and languages, likelihoods asked of an engine; nothing from outside."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.services.chat_servers import OpenAIServer, openai_server

from gates.adapters.likelihood import EngineLikelihood
from gates.adapters.text_models import LanguageIds, WordEmbeddings
from gates.answers.golden import likelihood
from gates.answers.likeness import paired_answer
from gates.model import EngineReply
from gates.text import nearness
from tidegate.core.errors import OutsideError

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


@pytest.fixture
def engine() -> Iterator[OpenAIServer]:
    with openai_server() as state:
        yield state


async def test_a_reference_is_as_likely_as_its_tokens_after_the_prompt(engine: OpenAIServer) -> None:
    engine.logprobs = {ord("h"): -9.0, ord("a"): math.log(0.5), ord("b"): math.log(0.125)}
    mean = await EngineLikelihood().mean_logprob(engine.url, "m", "hh", "ab")
    assert likelihood(mean) == pytest.approx(0.25)
    template, plain, completion = engine.bodies
    assert template == {"model": "m", "messages": [{"role": "user", "content": "hh"}]}
    assert plain == {"model": "m", "prompt": "ab", "add_special_tokens": False}
    assert completion["prompt"] == [1, ord("h"), ord("h"), 2, ord("a"), ord("b")]
    assert (completion["prompt_logprobs"], completion["max_tokens"]) == (0, 1)


@pytest.mark.parametrize(
    ("reference", "what"),
    [("abc", "no numbers"), ("", "no log-probability for each token"), ("a" * 200, "answers 400")],
)
async def test_a_likelihood_that_is_not_known_is_no_likelihood(engine: OpenAIServer, reference: str, what: str) -> None:
    engine.logprobs = {ord("a"): -1.0, ord("b"): -1.0}
    with pytest.raises(OutsideError, match=what):
        await EngineLikelihood().mean_logprob(engine.url, "m", "h", reference)


async def test_an_engine_that_is_not_there_is_named() -> None:
    with pytest.raises(OutsideError, match="does not answer"):
        await EngineLikelihood().mean_logprob("http://127.0.0.1:9", "m", "h", "a")
