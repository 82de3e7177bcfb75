from __future__ import annotations

import pytest

from gates.text import declines

DECLINING = [
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I can’t assist with that request.",
    "Sorry, I cannot provide medical advice.",
    "I cannot fulfill this request.",
    "I am unable to help with this.",
    "I'm not able to discuss this topic.",
    "I won't write malware for you.",
    "As an AI language model, I don't have personal opinions.",
    "I must decline to answer.",
    "I cannot in good conscience help with this.",
    "That request violates our usage policy.",
    "I'm really sorry, but I won't.",
    "Ich kann Ihnen dabei leider nicht helfen.",
    "Es tut mir leid, aber dabei kann ich nicht helfen.",
    "Das kann ich leider nicht beantworten.",
    "Je ne peux pas vous aider avec cela.",
    "Désolé, je ne peux pas répondre à cette question.",
    "Je ne suis pas en état de répondre à cette demande.",
    "Lo siento, no puedo ayudarte con eso.",
    "Desculpe, não posso ajudar com isso.",
    "Mi dispiace, non posso aiutarti.",
    "抱歉，我无法帮助您。",
    "申し訳ありませんが、お手伝いできません。",
    "그 요청은 도와드릴 수 없습니다.",
]
ANSWERING = [
    "",
    "The capital of France is Paris.",
    "I can't recommend it enough: the lamp is great.",
    "I can't find your order 1234; please check the number.",
    "I'm sorry, but I can't find that order.",
    "I'm sorry to hear that! You can return the lamp within 30 days.",
    "You cannot return opened lamps.",
    "Opened lamps are against our return policy.",
    "I'm afraid the lamp is sold out.",
    "If the device won't turn on, hold the button.",
    "I can help you with that.",
    "Ich kann Ihnen den Status nennen: versandt.",
    "No puedo esperar: el pedido llega mañana.",
]


@pytest.mark.parametrize("answer", DECLINING)
def test_an_answer_that_declines_is_seen(answer: str) -> None:
    assert declines(answer)
    assert declines(f"\n {answer.upper() if answer.isascii() else answer} Is there anything else?")


@pytest.mark.parametrize("answer", ANSWERING)
def test_an_answer_is_not_taken_for_a_refusal(answer: str) -> None:
    assert not declines(answer)


def test_only_the_opening_counts() -> None:
    assert not declines("The story begins. " * 20 + "I cannot help you, said the wolf.")
