"""What a pair of answers says once they are read: likeness and refusals; their words stay behind."""

from __future__ import annotations

from gates.evidence.batch import PairedAnswer, PairedReply
from gates.model import ChatAnswer
from gates.text import declines, similarity


def paired_answer(stable: ChatAnswer | None, canary: ChatAnswer | None) -> PairedAnswer:
    """Read what arrived of a pair; an answer that did not is None, and then nothing is alike."""
    return PairedAnswer(
        stable=read_reply(stable) if stable else None,
        canary=read_reply(canary) if canary else None,
        similarity=_alike(stable.text, canary.text) if stable and canary else None,
    )


def read_reply(reply: ChatAnswer) -> PairedReply:
    """Read one answer."""
    return PairedReply(
        ttft=reply.ttft_seconds,
        itl=reply.itl_seconds,
        e2e=reply.duration_seconds,
        output_tokens=reply.output_tokens,
        finish_reason=reply.finish_reason,
        refusal=declines(reply.text),
    )


def _alike(one: str, other: str) -> float | None:
    return similarity(one, other) if one.strip() or other.strip() else None
