"""What reads answers: the language of a text, by a model that is shipped; the pair of answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gates.adapters.text_models import LanguageIds
from gates.answers.likeness import paired_answer
from gates.model import ChatAnswer

OFFLINE = """
import logging, sys
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        raise SystemExit(f"{event} {args}")
sys.addaudithook(watch)
from gates.adapters.text_models import LanguageIds
print(LanguageIds().language("Wo bleibt meine Bestellung?"))
assert not logging.getLogger().handlers
"""
"""A process of its own: whether something was loaded before cannot be told in this one."""


def test_languages_need_no_network_and_touch_no_logger(tmp_path: Path) -> None:
    # An empty home has no cache to hide a download behind.
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("de\n", "")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def languages() -> LanguageIds:
    return LanguageIds()


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


def a_reply(text: str) -> ChatAnswer:
    return ChatAnswer(text=text, finish_reason="stop", output_tokens=9, ttft_seconds=0.1)


def test_a_pair_is_read_and_its_words_stay_behind() -> None:
    stable, canary = a_reply("The parcel arrives tomorrow."), a_reply("Je ne peux pas vous aider avec cela.")
    pair = paired_answer(stable, canary)
    assert pair.stable
    assert pair.canary
    assert (pair.stable.refusal, pair.canary.refusal) == (False, True)
    assert pair.similarity is not None
    assert pair.similarity < 0.3
    assert "parcel" not in pair.model_dump_json()
    assert paired_answer(stable, None).similarity is None
    assert paired_answer(a_reply(""), a_reply("\n")).similarity is None
    assert paired_answer(stable, stable).similarity == 1
