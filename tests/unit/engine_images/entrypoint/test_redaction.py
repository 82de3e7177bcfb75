"""What is taken out of a sampled text, what is left alone, and that no text holds it up."""

from __future__ import annotations

import time

import pytest

from engine_images.entrypoint.sampling.redaction import KINDS, redaction

ALL = redaction(KINDS)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("write to jane.doe+x@mail.example.co.uk, please", "write to [email], please"),
        ("my card is 4111 1111 1111 1111.", "my card is [card]."),
        ("IBAN DE89 3704 0044 0532 0130 00 is mine", "IBAN [iban] is mine"),
        ("call +49 (30) 901820 or 030/901820", "call [phone] or [phone]"),
        ("customer 12345678 is waiting", "customer [number] is waiting"),
        ("from 192.168.10.7 and 2001:db8:0:0:1:0:0:1", "from [ip] and [ip]"),
        ("the key is sk-proj-abcdefghij0123456789", "the key is [key]"),
        ("Dear Mr. Smith, my name is Ada Lovelace", "Dear Mr. [name], my name is [name]"),
    ],
)
def test_it_takes_out(text: str, left: str) -> None:
    assert ALL(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "What is 17 times 23, and 3.14159 squared?",
        "In 2026 there were 1,024 of them, in 12 rooms at 10:30.",
        "vLLM 0.32.0 needs Python 3.11",
        # No form of address: nobody but a language model tells that this is a person.
        "Ada met Charles in London",
        "not a card: 4111 1111",
    ],
)
def test_it_leaves_alone(text: str) -> None:
    assert ALL(text) == text


def test_words_go_whatever_their_case_and_characters() -> None:
    assert redaction((), ["ACME", "a.b*"])("acme and a.b* but not axb") == "[word] and [word] but not axb"


def test_only_what_is_asked_for_goes() -> None:
    assert redaction(["email"])("a@b.example 12345678") == "[email] 12345678"


@pytest.mark.parametrize("piece", ["a", "a@", "a.", "1 ", "1", "1:", "Mr. A ", "AA11", "sk", "+1-", "(0", "@a."])
def test_no_text_holds_it_up(piece: str) -> None:
    """An eighth of a megabyte of what patterns like, the most that a sample has."""
    began = time.process_time()
    ALL(piece * ((1 << 17) // len(piece)))
    assert time.process_time() - began < 2
